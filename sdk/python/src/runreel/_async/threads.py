"""The state that agents share between runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Literal, cast

from .. import _routes
from .._events import MessageRecord, Removed, RunRecord, ThreadRecord
from .._routes import UNSET, Unset
from .pages import pages
from .transport import AsyncTransport


class AsyncThreads:
    """The state that agents share between runs; see "Threads" in the wire contract."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, thread_id: str) -> ThreadRecord:
        """The thread; `ApiError` with `not_found` when there is none."""
        return cast(ThreadRecord, await self._transport.send(_routes.thread(thread_id)))

    async def put(
        self, thread_id: str, *, metadata: Mapping[str, object] | Unset = UNSET, ttl_s: int | Unset | None = UNSET
    ) -> ThreadRecord:
        """Creates the thread or changes the given members; the others stay.

        `ttl_s` is its time to live in seconds: 0 for "never expires", None for the server's default.
        """
        return cast(ThreadRecord, await self._transport.send(_routes.put_thread(thread_id, metadata, ttl_s)))

    async def delete(self, thread_id: str) -> None:
        """Deletes the thread with its checkpoints, values and writes. Its runs stay in the log."""
        await self._transport.send(_routes.delete_thread(thread_id))

    def list(self, *, q: str | None = None) -> AsyncGenerator[ThreadRecord, None]:
        """Threads, newest first, fetched page by page. `q` searches the id."""
        return pages(self._transport, _routes.threads(q), "threads")

    async def copy(self, thread_id: str, to: str) -> ThreadRecord:
        """Copies the thread's state to the thread `to`, which must have no other checkpoints."""
        return cast(ThreadRecord, await self._transport.send(_routes.copy_thread(thread_id, to)))

    def messages(self, thread_id: str) -> AsyncGenerator[MessageRecord, None]:
        """The messages of the thread's runs, oldest first, fetched page by page."""
        return pages(self._transport, _routes.thread_messages(thread_id), "messages")

    def runs(self, thread_id: str, *, status: str | Iterable[str] | None = None) -> AsyncGenerator[RunRecord, None]:
        """The runs of the thread, newest first, fetched page by page."""
        return pages(self._transport, _routes.thread_runs(thread_id, status), "runs")

    async def prune(
        self, thread_ids: Iterable[str], strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> Removed:
        """Keeps only the newest checkpoint of each namespace, or deletes the threads. At most 1 000 ids at a time."""
        return cast(Removed, await self._transport.send(_routes.prune_threads(thread_ids, strategy)))
