"""Paginated lists of checkpoints, without any I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._http import Call, Parameter
from .._thread_ids import checked_thread_id
from .wire import CheckpointPage, CheckpointRow, encode, get_call, read_tuple, thread_path

PAGE = 100


class Listing:
    """The pages of one list, newest first: send `call()`, pass the answer to `read()`, until `call()` is None."""

    def __init__(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig | None,
        filter: Mapping[str, object] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._serde = serde
        self._left = limit
        self._filter = filter or {}
        self._before = get_checkpoint_id(before) if before else None
        self._params: dict[str, Parameter] = {"before": self._before}
        if filter:
            self._params["filter"] = encode(filter).decode()
        self._next: Call | None
        if config is None:
            self._path = "/api/checkpoints"
        else:
            self._path = f"{thread_path(checked_thread_id(config['configurable']['thread_id']))}/checkpoints"
            self._params["ns"] = config["configurable"].get("checkpoint_ns")
        self._one = get_call(config) if config is not None and get_checkpoint_id(config) else None
        self._done = False

    def call(self) -> Call | None:
        """The next request, None when there is no more."""
        if self._done or (self._left is not None and self._left <= 0):
            return None
        if self._one is not None:
            return self._one
        return Call("GET", self._path, {**self._params, "limit": min(self._left or PAGE, PAGE)})

    def read(self, answer: CheckpointRow | CheckpointPage | None) -> Iterator[CheckpointTuple]:
        """The checkpoints of an answer, which is None when there is no such thread or checkpoint."""
        if answer is None or self._one is not None:
            self._done = True
            row = cast("CheckpointRow | None", answer)
            rows = [row] if row is not None and self._shows(row) else []
        else:
            page = cast(CheckpointPage, answer)
            rows = page["checkpoints"]
            self._params["cursor"] = page["next_cursor"]
            self._done = page["next_cursor"] is None
        if self._left is not None:
            self._left -= len(rows)
        return (read_tuple(self._serde, row) for row in rows)

    def _shows(self, row: CheckpointRow) -> bool:
        if self._before and row["checkpoint_id"] >= self._before:
            return False
        return _contains(row["metadata"], self._filter)


def _contains(whole: object, part: object) -> bool:
    """Containment as defined by PostgreSQL's `jsonb @>`."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(k in whole and _contains(whole[k], v) for k, v in part.items())
    if isinstance(part, (list, tuple)):
        return isinstance(whole, list) and all(any(_contains(item, wanted) for item in whole) for wanted in part)
    return bool(whole == part) and isinstance(whole, bool) == isinstance(part, bool)
