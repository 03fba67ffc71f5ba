"""Requests about whole threads, without any I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._http import Call
from .._thread_ids import checked_thread_id
from .wire import CheckpointPage, encode, thread_path

IDS_IN_ONE_REQUEST = 1_000

# Metadata that only threads of graphs with a `DeltaChannel` have, of LangGraph and of LangGraph.js.
_DELTA_MARKS: tuple[dict[str, object], ...] = ({"counters_since_delta_snapshot": {}}, {"delta_writes_versioned": True})


def delete_call(thread_id: str) -> Call:
    return Call("DELETE", thread_path(checked_thread_id(thread_id)))


def copy_call(source: str, target: str) -> Call:
    body = {"to": checked_thread_id(target)}
    return Call("POST", f"{thread_path(checked_thread_id(source))}/copy", json=body, idempotent=True)


def delete_for_runs_calls(run_ids: Sequence[str]) -> Iterator[Call]:
    for ids in _batches([str(run_id) for run_id in run_ids]):
        yield Call("POST", "/api/checkpoints/delete-for-runs", json={"run_ids": ids}, idempotent=True)


def prune_calls(thread_ids: Sequence[str], strategy: str) -> list[Call]:
    """Raises ValueError for a strategy that does not exist, TypeError for one id where a sequence is meant."""
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids must be a sequence of ids, not one id")
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"strategy must be keep_latest or delete, not {strategy!r}")
    return [
        Call("POST", "/api/threads/prune", json={"thread_ids": ids, "strategy": strategy}, idempotent=True)
        for ids in _batches([checked_thread_id(thread_id) for thread_id in thread_ids])
    ]


def delta_calls(thread_id: str) -> Iterator[Call]:
    """The requests that find the thread's checkpoints of graphs with a `DeltaChannel`."""
    path = f"{thread_path(checked_thread_id(thread_id))}/checkpoints"
    return (Call("GET", path, {"filter": encode(mark).decode(), "limit": 1}) for mark in _DELTA_MARKS)


def is_some(page: CheckpointPage | None) -> bool:
    return page is not None and bool(page["checkpoints"])


def refuse_delta(thread_ids: Sequence[str]) -> None:
    if thread_ids:
        raise NotImplementedError(
            f"keep_latest would lose state of threads whose graphs use a DeltaChannel: {', '.join(thread_ids)}"
        )


def _batches(ids: list[str]) -> Iterator[list[str]]:
    return (ids[start : start + IDS_IN_ONE_REQUEST] for start in range(0, len(ids), IDS_IN_ONE_REQUEST))
