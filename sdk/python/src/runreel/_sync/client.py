# Generated from src/runreel/_async/client.py by `./just unasync`: change that file instead of this one.
"""The methods of both kinds of client. How each is created is in `_client`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from .. import _routes
from .._events import Answer, Event, RunFields, RunRecord, Timeline
from .._follow import Following, OnGap
from .._routes import UNSET
from .._run import attached, checked, creation
from .._sender import CLOSE_TIMEOUT, Sender
from .._spans import Scope
from .._waiting import end, landed
from .follow import follow
from .pages import pages
from .run import Run
from .threads import Threads
from .transport import Transport

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    # Type checkers bundle it; it is not needed at run time.
    from typing_extensions import Unpack

Same = TypeVar("Same", bound="BaseClient")


class BaseClient:
    """Records runs through a sender, and reads them through a transport."""

    def __init__(self, transport: Transport, sender: Sender, retries: int) -> None:
        self._transport = transport
        self._sender = sender
        self._retries = retries
        self.threads = Threads(transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._transport.url

    @property
    def dropped(self) -> int:
        """How many events will not reach the log. Deltas do not count: a stored message contains their text."""
        return self._sender.dropped

    def run(
        self,
        name: str,
        *,
        parent: Scope[object] | str | None = None,
        run_id: str | None = None,
        external_id: str | None = None,
        attach: bool = False,
        **fields: Unpack[RunFields],
    ) -> Run:
        """`with client.run("report") as run:` — creates a run and ends it with the block.

        For `fields` see `RunFields`. `name` is the title, unless `title` is given. It is also the `agent`, when none is
        given and it is a valid name: 1 to 128 visible ASCII characters without spaces. `parent` is the parent run, or
        its id. An `input` or `metadata` over its bound is truncated like payloads. A run whose program was killed is
        reported as stalled `lease_ms` later, 30 000 unless given; while the block runs, a background thread renews the
        lease. With None there is no lease.

        Your own `run_id` must be a UUID version 7 of the last 24 hours. With `attach=True` the run may already exist,
        and the block continues it; the method `attach` does so without creating one.

        An `external_id` is the run's id in your own system, 1 to 255 characters. If another of your runs has it, this
        one is not created (`external_id_taken`); `put_run` returns the existing one.

        Entering waits for the server to create the run, at most 2 s, and not for a server known to be unreachable.
        """
        target = creation(name, parent=parent, run_id=run_id, external_id=external_id, attach=attach, fields=fields)
        return Run(self._sender, self._transport, target)

    def attach(self, run_id: str) -> Run:
        """`with client.attach(run_id) as run:` — continues an existing run, also one of another process.

        The block ends the run.
        """
        return Run(self._sender, self._transport, attached(run_id))

    def put_run(
        self,
        external_id: str,
        *,
        parent_run_id: str | None = None,
        **fields: Unpack[RunFields],
    ) -> RunRecord:
        """The run with this id of your own system, created if there is none.

        For `fields` see `RunFields`. Concurrent calls get the same run, and an existing run is not changed by the
        fields. `attach` continues it: `client.attach((client.put_run("build-42"))["run_id"])`.
        """
        members = {**checked(fields), "tags": list(fields.get("tags") or ()) or None, "parent_run_id": parent_run_id}
        call = _routes.put_run(external_id, members)
        return cast(RunRecord, self._transport.send(call))

    def run_by_external_id(self, external_id: str) -> RunRecord:
        """The run with this id of your own system; `ApiError` with `not_found` if there is none."""
        return cast(RunRecord, self._transport.send(_routes.by_external_id(external_id)))

    def get_run(self, run_id: str) -> RunRecord:
        """The current state of the run."""
        return cast(RunRecord, self._transport.send(_routes.run(run_id)))

    def list_runs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        thread_id: str | None = None,
        agent: str | None = None,
        tag: str | None = None,
        model: str | None = None,
        q: str | None = None,
        parent_run_id: str | None = None,
        external_id: str | None = None,
        roots: bool | None = None,
        since: str | None = None,
        until: str | None = None,
        updated_since: str | None = None,
        updated_until: str | None = None,
        duration_min_ms: int | None = None,
        duration_max_ms: int | None = None,
        sort: Literal["created", "updated", "duration", "events"] | None = None,
        order: Literal["asc", "desc"] | None = None,
    ) -> Generator[RunRecord, None, None]:
        """Runs, newest first, fetched page by page on demand.

        `q` finds runs that contain all its words, in title, messages, tool calls, errors or payloads; the most recent
        events may not be found yet. `since` (inclusive) and `until` (exclusive) are RFC 3339. Separate several agents,
        or several tags that a run must all have, with commas.
        """
        call = _routes.runs(
            status=_routes.words(status),
            thread_id=thread_id,
            agent=agent,
            tag=tag,
            model=model,
            q=q,
            parent_run_id=parent_run_id,
            external_id=external_id,
            roots=None if roots is None else str(roots).lower(),
            since=since,
            until=until,
            updated_since=updated_since,
            updated_until=updated_until,
            duration_min_ms=duration_min_ms,
            duration_max_ms=duration_max_ms,
            sort=sort,
            order=order,
        )
        return pages(self._transport, call, "runs")

    def delete_run(self, run_id: str) -> None:
        """Permanently deletes an ended run with its events."""
        self._transport.send(_routes.delete_run(run_id))

    def cancel(self, run_id: str, reason: str | None = None) -> RunRecord:
        """Cancels a run and all its descendants. The producer notices at its next event, see `Run.ended`."""
        return cast(RunRecord, self._transport.send(_routes.cancel(run_id, reason)))

    def resume(self, run_id: str, interrupt_id: str, decision: Answer, value: object = UNSET) -> RunRecord:
        """Answers an interrupt. The first answer counts: a different one raises `ApiError` (`interrupt_closed`)."""
        return cast(RunRecord, self._transport.send(_routes.resume(run_id, interrupt_id, decision, value)))

    def heartbeat(self, run_id: str) -> None:
        """Renews the lease of a run without an event."""
        self._transport.send(_routes.heartbeat(run_id))

    def events(
        self, run_id: str, *, after: int = 0, types: str | Iterable[str] | None = None
    ) -> Generator[Event, None, None]:
        """The stored events of a run after the seq `after`, fetched page by page; it does not wait for more.

        `types` are exact types and families such as `tool.*`.
        """
        for envelope in pages(self._transport, _routes.events(run_id, after, types), "events"):
            yield Event.of(envelope, str(envelope["seq"]))

    def timeline(self, run_id: str) -> Timeline:
        """The spans of a run and their totals."""
        return cast(Timeline, self._transport.send(_routes.timeline(run_id)))

    def stream(
        self,
        run_id: str,
        *,
        after: int | str | None = None,
        types: str | Iterable[str] | None = None,
        tokens: bool = True,
        tree: bool = False,
        tail: int | None = None,
        on_gap: OnGap = "raise",
    ) -> Generator[Event, None, None]:
        """Follows a run to its end: stored events, then live ones, across disconnects and restarts.

        Every durable event after `after`, a seq (or an `Event.id`, in a tree), arrives once and in order. `tail=20`
        starts with the last 20 instead. `tree=True` follows all descendants as well. `tokens=False` omits what is
        never stored: deltas and snapshots, see `Event`. When events after the cursor were deleted, `StreamGap` is
        raised, or with `on_gap="continue"` they are skipped. If the server never answers, `ConnectionFailed` is raised
        after the client's retries; a stream that was open once reconnects indefinitely.
        """
        following = Following(
            _routes.run_stream(run_id),
            after=after,
            types=types,
            tokens=tokens,
            tree=tree,
            tail=tail,
            on_gap=on_gap,
            retries=self._retries,
        )
        return follow(self._transport, following)

    def stream_thread(
        self,
        thread_id: str,
        *,
        after: str | None = None,
        types: str | Iterable[str] | None = None,
        tokens: bool = True,
        tail: int | None = None,
        on_gap: OnGap = "raise",
    ) -> Generator[Event, None, None]:
        """Follows all runs of a thread, also future ones. It never ends; `after` is the `id` of an earlier event."""
        following = Following(
            _routes.thread_stream(thread_id),
            after=after,
            types=types,
            tokens=tokens,
            tail=tail,
            on_gap=on_gap,
            retries=self._retries,
        )
        return follow(self._transport, following)

    def stream_all(
        self,
        *,
        after: str | None = None,
        types: str | Iterable[str] | None = None,
        tokens: bool = True,
        tail: int | None = None,
        on_gap: OnGap = "raise",
    ) -> Generator[Event, None, None]:
        """Follows all runs the caller owns. It never ends; `after` is the `id` of an earlier event."""
        following = Following(
            _routes.ALL_STREAM,
            after=after,
            types=types,
            tokens=tokens,
            tail=tail,
            on_gap=on_gap,
            retries=self._retries,
        )
        return follow(self._transport, following)

    def flush(self, timeout: float | None = 30.0) -> bool:
        """Waits until everything emitted so far is stored or rejected; False after `timeout` seconds.

        With `on_error="raise"`, raises the errors of background requests.
        """
        done = landed(self._sender.flush(patient=True), timeout)
        self._sender.raise_pending()
        if not done:
            self._sender.raise_unsent()
        return done

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Sends what is queued, for at most `timeout` seconds, and closes. This also happens when the program exits."""
        end(self._sender, timeout)
        self._sender.disconnect()
        self._transport.close()
        self._sender.raise_pending()

    def __enter__(self: Same) -> Same:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
