"""LangGraph's checkpoints in Runreel: each thread's state, stored by the server and readable from any process."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._http import Call
from .._transport import AsyncTransport, Verify
from ..errors import ApiError
from . import threads, wire
from .direct import DirectTransport
from .listing import Listing


class RunreelSaver(BaseCheckpointSaver[str]):
    """A checkpointer for `graph.compile(checkpointer=…)`; for `invoke` and for `ainvoke`.

    One saver can be shared by threads and by event loops. It keeps connections open: close it (`close`, `aclose`) or
    use it as a context manager, `with` or `async with`. Values are serialised by `serde`, by default LangGraph's own;
    with an `EncryptedSerializer` the server sees neither values nor state. It does see ids, the names of the channels
    and the metadata, which must be JSON: NUL characters and lone surrogates are removed, another value raises
    TypeError or ValueError. A member of the metadata that is a JWT (a compact JWS, also behind `Bearer`) is removed:
    LangGraph copies `configurable` there, and a service may pass its user's token in it. The state itself is stored
    unchanged; the server rejects one that contains a JWT of the server's own. A checkpoint belongs to the run named as
    `run_id` in its metadata, else to the one that a `RunreelCallback` in the config records. `url`, `token`,
    `timeout`, `retries` and `verify` are those of `Client`.

    Methods raise `ApiError` when the server refuses, `ConnectionFailed` when it does not answer after `retries`, and
    ValueError for a thread id that is not 1 to 255 characters of `A-Z a-z 0-9 . _ : @ + -`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        serde: SerializerProtocol | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Verify = True,
    ) -> None:
        super().__init__(serde=serde)
        options: dict[str, Any] = {"token": token, "timeout": timeout, "retries": retries, "verify": verify}
        self._transport = DirectTransport(url, **options)
        # Not a partial: that would print the token.
        self._new_async_transport: Callable[[], AsyncTransport] = lambda: AsyncTransport(url, **options)
        self._async_transports: dict[asyncio.AbstractEventLoop, AsyncTransport] = {}
        self._lock = threading.Lock()

    def setup(self) -> None:
        """Does nothing: the server manages its tables. Other savers need this call."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        call, stored = wire.put_call(self.serde, config, checkpoint, metadata, new_versions)
        self._transport.send(call)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if writes:
            self._transport.send(wire.put_writes_call(self.serde, config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        row = self._find(wire.get_call(config))
        return None if row is None else wire.read_tuple(self.serde, row)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Newest first, a page at a time; without `config`, of all threads of the token's principal.

        `filter` selects the checkpoints whose metadata contains all of it, nested objects included.
        """
        listing = Listing(self.serde, config, filter, before, limit)
        while call := listing.call():
            yield from listing.read(self._find(call))

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread with all its checkpoints. Its runs stay in the log."""
        self._find(threads.delete_call(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints whose metadata has one of these as `run_id`, with their writes."""
        for call in threads.delete_for_runs_calls(run_ids):
            self._transport.send(call)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies the whole history, if any. `ApiError` (`thread_exists`) when the target has another one."""
        self._find(threads.copy_call(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all but the newest checkpoint of each namespace (`keep_latest`), or the threads (`delete`).

        `keep_latest` refuses threads of graphs with a `DeltaChannel` (NotImplementedError) before anything is removed,
        because their newest value is assembled from older checkpoints. (A thread that begins to use one at this moment
        is not detected.) Raises ValueError for another strategy.
        """
        calls = threads.prune_calls(thread_ids, strategy)
        if strategy == "keep_latest":
            threads.refuse_delta([thread for thread in thread_ids if self._uses_delta(thread)])
        for call in calls:
            self._transport.send(call)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        call, stored = wire.put_call(self.serde, config, checkpoint, metadata, new_versions)
        await self._async_transport().send(call)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if writes:
            await self._async_transport().send(wire.put_writes_call(self.serde, config, writes, task_id, task_path))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        row = await self._afind(wire.get_call(config))
        return None if row is None else wire.read_tuple(self.serde, row)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        listing = Listing(self.serde, config, filter, before, limit)
        while call := listing.call():
            for checkpoint in listing.read(await self._afind(call)):
                yield checkpoint

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._afind(threads.delete_call(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        for call in threads.delete_for_runs_calls(run_ids):
            await self._async_transport().send(call)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._afind(threads.copy_call(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        calls = threads.prune_calls(thread_ids, strategy)
        if strategy == "keep_latest":
            threads.refuse_delta([thread for thread in thread_ids if await self._auses_delta(thread)])
        for call in calls:
            await self._async_transport().send(call)

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """A counter and, so that two branches of a thread never share a version, 48 random bits: `00000003.9f…`.

        Sorts after every version of LangGraph's own savers, whose counters have more leading zeros. The random bits are
        the operating system's, because programs that seed `random` would get the same ones.
        """
        counted = int(current.partition(".")[0]) if isinstance(current, str) else int(current or 0)
        return f"{counted + 1:08}.{secrets.token_hex(6)}"

    def close(self) -> None:
        """Closes the connections of the sync methods, which cannot be used afterwards."""
        self._transport.close()

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, and those of the sync methods."""
        self.close()
        if transport := self._async_transports.pop(asyncio.get_running_loop(), None):
            await transport.close()

    def __enter__(self) -> RunreelSaver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> RunreelSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def _find(self, call: Call) -> Any:
        """The answer, None when what is asked for does not exist."""
        try:
            return self._transport.send(call)
        except ApiError as error:
            if error.code != "not_found":
                raise
            return None

    async def _afind(self, call: Call) -> Any:
        try:
            return await self._async_transport().send(call)
        except ApiError as error:
            if error.code != "not_found":
                raise
            return None

    def _uses_delta(self, thread_id: str) -> bool:
        return any(threads.is_some(self._find(call)) for call in threads.delta_calls(thread_id))

    async def _auses_delta(self, thread_id: str) -> bool:
        return any([threads.is_some(await self._afind(call)) for call in threads.delta_calls(thread_id)])

    def _async_transport(self) -> AsyncTransport:
        """That of the running loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        transport = self._async_transports.get(loop)
        if transport is None:
            with self._lock:
                for closed in [other for other in self._async_transports if other.is_closed()]:
                    del self._async_transports[closed]
                transport = self._async_transports[loop] = self._new_async_transport()
        return transport
