"""The methods of a checkpointer as LangGraph expects them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from ..._http import Call
from ...errors import ApiError
from .. import threads, wire
from ..listing import Listing


class AsyncCheckpoints(BaseCheckpointSaver[str]):
    """The methods that wait for the server. `RunreelSaver` decides how a request is sent."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        call, stored = wire.put_call(self.serde, config, checkpoint, metadata, new_versions)
        await self._async_send(call)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, object]], task_id: str, task_path: str = ""
    ) -> None:
        if writes:
            await self._async_send(wire.put_writes_call(self.serde, config, writes, task_id, task_path))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        row = await self._async_find(wire.get_call(config))
        return None if row is None else wire.read_tuple(self.serde, row)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, object] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Newest first, a page at a time; without `config`, of all threads of the token's principal.

        `filter` selects the checkpoints whose metadata contains all of it, nested objects included.
        """
        listing = Listing(self.serde, config, filter, before, limit)
        while call := listing.call():
            for checkpoint in listing.read(await self._async_find(call)):
                yield checkpoint

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread with all its checkpoints. Its runs stay in the log."""
        await self._async_find(threads.delete_call(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints whose metadata has one of these as `run_id`, with their writes."""
        for call in threads.delete_for_runs_calls(run_ids):
            await self._async_send(call)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies the whole history, if any. `ApiError` (`thread_exists`) when the target has another one."""
        await self._async_find(threads.copy_call(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all but the newest checkpoint of each namespace (`keep_latest`), or the threads (`delete`).

        `keep_latest` refuses threads of graphs with a `DeltaChannel` (NotImplementedError) before anything is removed,
        because their newest value is assembled from older checkpoints. (A thread that begins to use one at this moment
        is not detected.) Raises ValueError for another strategy.
        """
        calls = threads.prune_calls(thread_ids, strategy)
        if strategy == "keep_latest":
            threads.refuse_delta([thread for thread in thread_ids if await self._async_uses_delta(thread)])
        for call in calls:
            await self._async_send(call)

    async def _async_send(self, call: Call) -> object:
        raise NotImplementedError

    async def _async_find(self, call: Call) -> Any:
        """The answer, None when the requested resource does not exist."""
        try:
            return await self._async_send(call)
        except ApiError as error:
            if error.code != "not_found":
                raise
            return None

    async def _async_uses_delta(self, thread_id: str) -> bool:
        for call in threads.delta_calls(thread_id):
            if threads.is_some(await self._async_find(call)):
                return True
        return False
