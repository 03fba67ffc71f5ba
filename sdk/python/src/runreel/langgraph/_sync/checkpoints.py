# Generated from src/runreel/langgraph/_async/checkpoints.py by `./just unasync`: change that file instead of this one.
"""The methods of a checkpointer as LangGraph expects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class Checkpoints(BaseCheckpointSaver[str]):
    """The methods that wait for the server. `RunreelSaver` decides how a request is sent."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        call, stored = wire.put_call(self.serde, config, checkpoint, metadata, new_versions)
        self._send(call)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, object]], task_id: str, task_path: str = ""
    ) -> None:
        if writes:
            self._send(wire.put_writes_call(self.serde, config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        row = self._find(wire.get_call(config))
        return None if row is None else wire.read_tuple(self.serde, row)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, object] | None = None,
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
            self._send(call)

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
            self._send(call)

    def _send(self, call: Call) -> object:
        raise NotImplementedError

    def _find(self, call: Call) -> Any:
        """The answer, None when the requested resource does not exist."""
        try:
            return self._send(call)
        except ApiError as error:
            if error.code != "not_found":
                raise
            return None

    def _uses_delta(self, thread_id: str) -> bool:
        return any(threads.is_some(self._find(call)) for call in threads.delta_calls(thread_id))
