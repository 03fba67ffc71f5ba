"""A run from its creation to its end, as a context manager."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress

from . import _ids, _routes
from ._events import RunFields
from ._failure import described
from ._outbox import OVERHEAD_BYTES, Create, Delta, Emission, Target
from ._payload import encoded, plain
from ._sender import Sender
from ._spans import Scope, Uploaded_co, question
from ._uploads import Upload

# Seconds that entering and leaving a run wait for a slow server; an unreachable one is not waited for.
ENTER_TIMEOUT = 2.0
LEAVE_TIMEOUT = 5.0
# How long a program may be silent before its run is reported as stalled. An event renews the lease like a heartbeat,
# of which there are three per lease.
LEASE_MS = 30_000
BEATS = 3

_NAME = re.compile(r"[!-~]{1,128}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_name(text: str | None) -> bool:
    """Whether it is a valid name of an agent; the server accepts a few more."""
    return text is not None and 0 < len(text) <= 128 and text.isprintable() and text.strip() == text


def checked(fields: RunFields) -> RunFields:
    """TypeError if one of these is not a field of a run."""
    for name in fields.keys() - RunFields.__annotations__.keys():
        raise TypeError(f"{name!r} is not a field of a run")
    return fields


def creation(
    name: str,
    *,
    parent: Scope[object] | str | None,
    run_id: str | None,
    external_id: str | None,
    attach: bool,
    fields: RunFields,
) -> Target:
    """A run as requested from a client; it is created before its first event.

    TypeError for arguments of the wrong type; `input` and `metadata` can contain anything.
    """
    fields = checked(fields)
    if isinstance(parent, RunScope):
        # The parent must be created before its child.
        parent._begin()
    input, metadata = fields.pop("input", None), fields.pop("metadata", None)
    shown, lease_ms = fields.get("title"), fields.get("lease_ms", LEASE_MS)
    members = {
        **fields,
        "run_id": run_id or _ids.run_id(),
        "external_id": external_id,
        "parent_run_id": parent.run_id if isinstance(parent, Scope) else parent,
        "agent": fields.get("agent") or (name if _NAME.fullmatch(name) else None),
        "title": _CONTROL.sub(" ", name if shown is None else shown)[:512],
        "tags": list(fields.get("tags") or ()) or None,
        "lease_ms": lease_ms,
        # The run begins now, even if an unreachable server learns of it later.
        "at": _ids.now(),
    }
    body = {name: encoded(value) for name, value in members.items() if value is not None}
    if input is not None:
        body["input"] = encoded(input)
    if metadata is not None:
        if not isinstance(metadata, Mapping):
            raise TypeError("the metadata of a run must be a mapping")
        members_of_it = plain(metadata)
        body["metadata"] = encoded(members_of_it if isinstance(members_of_it, dict) else {"value": members_of_it})
    target = Target(str(members["run_id"]), beat=None if lease_ms is None else beat_of(lease_ms))
    target.create = Create(target, _routes.create_body(body), attach)
    return target


def attached(run_id: str) -> Target:
    """An existing run. Its lease is not known here, so the default is assumed."""
    return Target(run_id, beat=beat_of(LEASE_MS), heard=time.monotonic())


def beat_of(lease_ms: int) -> float:
    """Seconds between two renewals of such a lease. The server treats 0 as a minute."""
    return (lease_ms or 60_000) / 1_000 / BEATS


class RunScope(Scope[Uploaded_co]):
    """What `Run` and `AsyncRun` share: everything except waiting."""

    def __init__(self, sender: Sender, target: Target) -> None:
        super().__init__(self._put, target.run_id, None, self._keep)
        self.output: object = None
        self._sender = sender
        self._target = target
        self._left = False
        self._open_approvals: set[str] = set()
        sender.keep(self)

    @property
    def ended(self) -> bool:
        """Whether the run accepts no more events: it was ended here, or the server reported its end.

        A cancellation by another client is noticed with the first event that is rejected because of it.
        """
        return self._left or self._target.over is not None

    def complete(self, output: object = None) -> None:
        """Ends the run with `run.completed`. Leaving the block does this with `output`, unless the run has ended."""
        self._end("run.completed", {"output": self.output if output is None else output})

    def fail(self, error: BaseException | str) -> None:
        """Ends the run with `run.failed` and the error; an exception includes its stack and its causes."""
        self._end("run.failed", {"error": described(error)}, error)

    def cancel(self, reason: str | None = None) -> None:
        """Ends the run with `run.cancelled`. `client.cancel` reaches its descendants as well."""
        self._end("run.cancelled", {} if reason is None else {"reason": reason}, reason or "cancelled")

    def detach(self) -> None:
        """Leaves the run as it is: the block does not end it, and another process can use `client.attach`."""
        self._finish_message()
        self._left = True

    def _keep(self, upload: Upload) -> Uploaded_co:
        raise NotImplementedError

    def _begin(self) -> None:
        self._sender.begin(self._target)

    def _leave(self, error: BaseException | None) -> None:
        # Also if the run stays open: only this process has the message's text.
        self._finish_message()
        self._sender.release(self)
        if isinstance(error, SystemExit) and not error.code:
            error = None
        if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)):
            self.cancel(type(error).__name__)
        elif error is not None:
            self.fail(error)
        elif not self._open_approvals:
            self.complete()
        # Otherwise it still waits for a person, and a process that attaches to it continues from the answer.

    def _give_up(self, error: BaseException) -> None:
        """Ends the run that may have been created, because its block is never entered."""
        if self._target.over is None:
            with suppress(Exception):
                self._leave(error)

    def _end(self, type: str, payload: Mapping[str, object], error: BaseException | str | None = None) -> None:
        if not self._left:
            self._finish(error)
            self._left = True
            self._put(type, payload, members={})

    def _put(
        self, type: str, payload: object = None, *, members: Mapping[str, str | None], text: str | None = None
    ) -> None:
        envelope = {"type": type, **{name: value for name, value in members.items() if value is not None}}
        if text is not None:
            size = len(text.encode(errors="replace")) + OVERHEAD_BYTES
            head = encoded(envelope)
            self._sender.put(Delta(self._target, type, head, size=size, pieces=[text], characters=len(text)))
            return
        envelope.setdefault("event_id", _ids.event_id())
        # The time of the call, because the batch arrives later.
        envelope["at"] = _ids.now()
        data = encoded({} if payload is None else payload)
        # An answer through the API also resumes a run, and may come first.
        optional = type in ("run.interrupted", "run.resumed")
        size = len(data) + OVERHEAD_BYTES
        self._sender.put(Emission(self._target, type, encoded(envelope), data, optional, size=size))

    def _request_approval(
        self,
        prompt: str,
        details: object,
        expires_in: float | None,
        kind: str,
        interrupt_id: str | None,
    ) -> str:
        """Emits the question to a person, and returns the interrupt's id."""
        interrupt_id = _ids.fitted(interrupt_id or _ids.span_id("interrupt"))
        payload = question(prompt, details, expires_in, kind)
        # The text before the question must be there when a person reads the question.
        self._finish_message()
        # The event ids derive from the interrupt's id, so that asking again in a later process is a repeat.
        self.event(
            "interrupt.requested", payload, span_id=interrupt_id, event_id=_ids.fitted(f"{interrupt_id}:requested")
        )
        if not self._open_approvals:
            members = {"span_id": interrupt_id, "event_id": _ids.fitted(f"{interrupt_id}:interrupted")}
            self._put("run.interrupted", {"interrupt_id": interrupt_id}, members=members)
        self._open_approvals.add(interrupt_id)
        return interrupt_id
