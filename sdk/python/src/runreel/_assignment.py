"""A run as its handler sees it: `runner.Assignment`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Protocol, cast

import httpx2

from . import _ids, _routes
from ._events import Decision
from ._failure import described
from ._json import JsonObject, JsonValue
from ._payload import encoded
from ._runner_outbox import Line, Said, is_terminal
from ._spans import Scope, question
from ._sync.transport import Transport
from ._uploads import AsyncStored, Stored, Upload
from .errors import RunEnded, RunreelError

log = logging.getLogger("runreel")

# Maximum number of unsent events of a run; at it, deltas are dropped and a handler in a thread waits.
WAITING_EVENTS = 10_000


class Host(Protocol):
    """The parts of `Runner` that an assignment uses."""

    _changed: threading.Condition
    _thread: threading.Thread | None
    _transport: Transport

    def _wake(self) -> None: ...

    async def _tick(self) -> None: ...


class Assignment(Scope[Stored | AsyncStored]):
    """A run to execute: the methods of `client.run`'s run, and the values the run was created with.

    `run.input`, `run.agent`, `run.thread_id`, `run.session_id`, `run.context` (title, metadata, tags, role, parent …),
    `run.attempt`: 1 unless it was assigned before. A run that answers a channel message has an
    `run.origin`: `{"channel", "chat", "user"}`. `run.trace_id` is the W3C trace it belongs to. What the handler returns
    is the run's output.
    """

    def __init__(self, runner: Host, message: Mapping[str, JsonValue]) -> None:
        super().__init__(self._put, str(message["run_id"]), None, self._keep)
        self.agent = cast(str, message.get("agent") or "")
        self.thread_id = cast("str | None", message.get("thread_id"))
        self.input = message.get("input")
        self.context = dict(cast("JsonObject | None", message.get("context")) or {})
        self.session_id = cast("str | None", self.context.get("session_id"))
        self.origin = cast("dict[str, str] | None", self.context.get("origin"))
        self.trace_id = cast("str | None", self.context.get("trace_id"))
        self.attempt = int(cast("int | None", self.context.get("attempt")) or 1)
        self.output: object = None
        self._runner = runner
        self._said = Said()
        self._changed = runner._changed
        self._over: str | None = None
        self._ended = False
        self._questions = 0
        self._asked: set[str] = set()
        self._answers: dict[str, Decision] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the run was cancelled or assigned to another runner. Later events are rejected."""
        return self._over is not None

    def complete(self, output: object = None) -> None:
        """Ends the run with `run.completed`; returning from the handler does so, too."""
        self._end("run.completed", {"output": self.output if output is None else output}, None)

    def fail(self, error: BaseException | str) -> None:
        """Ends the run with `run.failed`; an exception that leaves the handler does so, too."""
        self._end("run.failed", {"error": described(error)}, error)

    def ask(
        self,
        prompt: str,
        *,
        details: object = None,
        expires_in: float | None = None,
        kind: str = "approval",
        interrupt_id: str | None = None,
        timeout: float | None = None,
    ) -> Decision:
        """Asks a person and waits. Raises RunEnded when the run ends first, TimeoutError after `timeout`.

        A run that is executed again because a runner died asks its questions in the same order and gets the answers
        given in the meantime.
        """
        asked = self._question(prompt, details, expires_in, kind, interrupt_id)
        with self._changed:
            done = self._changed.wait_for(lambda: asked in self._answers or self._over is not None, timeout)
            return self._decision(asked, done)

    async def ask_async(
        self,
        prompt: str,
        *,
        details: object = None,
        expires_in: float | None = None,
        kind: str = "approval",
        interrupt_id: str | None = None,
    ) -> Decision:
        """`ask` for handlers that are coroutines, without a timeout."""
        asked = self._question(prompt, details, expires_in, kind, interrupt_id)
        while asked not in self._answers and self._over is None:
            await self._runner._tick()
        return self._decision(asked, True)

    def _question(
        self, prompt: str, details: object, expires_in: float | None, kind: str, interrupt_id: str | None
    ) -> str:
        self._questions += 1
        asked = _ids.fitted(interrupt_id or f"question-{self._questions}")
        if asked not in self._answers:
            payload = question(prompt, details, expires_in, kind)
            self._finish_message()
            self._asked.add(asked)
            self.event("interrupt.requested", payload, span_id=asked, event_id=_ids.fitted(f"{asked}:requested"))
            stopped = _ids.fitted(f"{asked}:interrupted")
            self.event("run.interrupted", {"interrupt_id": asked}, span_id=asked, event_id=stopped)
        return asked

    def _decision(self, asked: str, done: bool) -> Decision:
        if not done:
            raise TimeoutError(f"no answer to {asked} in time")
        self._asked.discard(asked)
        if asked not in self._answers:
            raise RunEnded(self._over or "the run is over")
        return self._answers[asked]

    def _end(self, type: str, payload: Mapping[str, object], error: BaseException | str | None) -> None:
        if not self._ended:
            self._finish(error)
            self._put(type, payload, members={})

    def _keep(self, upload: Upload) -> Stored | AsyncStored:
        # A separate request: the artifact's event may precede events emitted just before it.
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._send(upload)
        # In an event loop the upload runs in a thread and is awaited.
        return asyncio.to_thread(self._send, upload)

    def _send(self, upload: Upload) -> Stored:
        try:
            request = _routes.upload(self.run_id, upload, upload.body())
            return cast(Stored, self._runner._transport.send(request))
        except (RunreelError, httpx2.HTTPError, OSError, ValueError) as error:
            log.warning("the artifact %s of run %s was not stored: %s", upload.name, self.run_id, error)
            return None

    def _put(
        self, type: str, payload: object = None, *, members: Mapping[str, str | None], text: str | None = None
    ) -> None:
        envelope = {"type": type, **{name: value for name, value in members.items() if value is not None}}
        if text is None:
            envelope.setdefault("event_id", _ids.event_id())
            envelope["at"] = _ids.now()
        body = encoded({"text": text}) if text is not None else encoded({} if payload is None else payload)
        line = Line(encoded(envelope)[:-1] + b',"payload":' + body + b"}", text is not None)
        waits = threading.current_thread() is not self._runner._thread
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: len(self._said.fresh) < WAITING_EVENTS or self._over is not None)
            if self._over is not None or self._ended or (line.delta and len(self._said.fresh) >= WAITING_EVENTS):
                return
            self._ended = is_terminal(type)
            self._said.fresh.append(line)
        self._runner._wake()
