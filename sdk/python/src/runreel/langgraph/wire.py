"""Checkpoints in the server's format, without any I/O.

Values are serialised by LangGraph's serialiser and sent as `{"t": type, "b": base64}`; the server never decodes one.
The versions of the channels are sent once, as `versions`, and put back into the checkpoint when it is read.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._http import Call, quote
from .._payload import TRUNCATED, _dump, _text, plain
from .._thread_ids import checked_thread_id

# A blob costs the server a row and an index entry, about 200 bytes; a short value is stored again in every checkpoint
# that contains it.
INLINE_CHARACTERS = 64

METADATA_BYTES = 65_536

# A compact JWS, bare or after `Bearer`: three parts, of which the first begins with the base64 of `{"`.
_JWS = re.compile(r"(?:bearer\s+)?eyJ[\w-]*\.[\w-]*\.[\w-]*", re.IGNORECASE | re.ASCII)

_SPLIT_FROM_STATE = frozenset({"id", "channel_values", "channel_versions"})


class Place(NamedTuple):
    """Where a config points: a thread, a namespace of it ("" is the root graph), and a checkpoint or the newest."""

    thread_id: str
    ns: str
    checkpoint_id: str | None

    @classmethod
    def of(cls, config: RunnableConfig) -> Place:
        configurable = config["configurable"]
        return cls(
            checked_thread_id(configurable["thread_id"]),
            configurable.get("checkpoint_ns") or "",
            get_checkpoint_id(config),
        )

    def config(self) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.ns,
                "checkpoint_id": self.checkpoint_id,
            }
        }


class CheckpointRow(TypedDict):
    """A checkpoint as the server returns it. A value is `{"t": type, "b": base64}`; an empty value has no `b`."""

    thread_id: str
    ns: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Mapping[str, str]
    metadata: CheckpointMetadata
    versions: ChannelVersions
    blobs: Mapping[str, Mapping[str, str]]
    # Each has a `task_id` and a `channel`, too.
    writes: list[Mapping[str, str]]


class CheckpointPage(TypedDict):
    """A page of checkpoints, and where the next page starts."""

    checkpoints: list[CheckpointRow]
    next_cursor: str | None


class Recorder:
    """A callback that knows which run works on a thread."""

    def run_of(self, thread_id: str) -> str | None:
        return None


def thread_path(thread_id: str) -> str:
    return f"/api/threads/{quote(thread_id)}"


def put_call(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> tuple[Call, RunnableConfig]:
    """The request that stores a checkpoint, and the config that points to it afterwards."""
    place = Place.of(config)
    inline: dict[str, object] = {}
    blobs: dict[str, object] = {}
    for channel, value in checkpoint["channel_values"].items():
        if _is_short(value):
            inline[channel] = value
        elif channel in new_versions:
            blobs[channel] = {"version": new_versions[channel], **_typed(serde, value)}
    # A new version without a value needs no blob: a missing blob is read as no value.
    state = {name: member for name, member in checkpoint.items() if name not in _SPLIT_FROM_STATE}
    state["channel_values"] = inline
    stored = _bounded(plain(_without_tokens(get_serializable_checkpoint_metadata(config, metadata))))
    body = {
        "ns": place.ns,
        "parent_id": place.checkpoint_id,
        # None if it is in the metadata, where the server reads it.
        "run_id": None if "run_id" in stored else _made_by(config, place.thread_id),
        "checkpoint": _typed(serde, state),
        "metadata": stored,
        "versions": checkpoint["channel_versions"],
        "blobs": blobs,
    }
    path = f"{thread_path(place.thread_id)}/checkpoints/{quote(checkpoint['id'])}"
    return Call("PUT", path, content=encode(body)), place._replace(checkpoint_id=checkpoint["id"]).config()


def put_writes_call(
    serde: SerializerProtocol,
    config: RunnableConfig,
    writes: Sequence[tuple[str, object]],
    task_id: str,
    task_path: str,
) -> Call:
    place = Place.of(config)
    # A task's status (an error, an interrupt) may change; its writes may not.
    upsert = all(channel in WRITES_IDX_MAP for channel, _ in writes)
    body = {
        "ns": place.ns,
        "task_id": task_id,
        "task_path": task_path,
        "upsert": upsert,
        "writes": [
            {"idx": WRITES_IDX_MAP.get(channel, position), "channel": channel, **_typed(serde, value)}
            for position, (channel, value) in enumerate(writes)
        ],
    }
    checkpoint_id = quote(config["configurable"]["checkpoint_id"])
    return Call("PUT", f"{thread_path(place.thread_id)}/checkpoints/{checkpoint_id}/writes", content=encode(body))


def get_call(config: RunnableConfig) -> Call:
    place = Place.of(config)
    which = quote(place.checkpoint_id) if place.checkpoint_id else "latest"
    params = {"ns": place.ns} if place.ns else None
    return Call("GET", f"{thread_path(place.thread_id)}/checkpoints/{which}", params)


def read_tuple(serde: SerializerProtocol, row: CheckpointRow) -> CheckpointTuple:
    """LangGraph's form of a checkpoint, from the server's."""
    place = Place(row["thread_id"], row["ns"], row["checkpoint_id"])
    state = _loaded(serde, row["checkpoint"])
    values = state.get("channel_values") or {}
    for channel, blob in row["blobs"].items():
        if blob["t"] != "empty":
            values[channel] = _loaded(serde, blob)
    state.update(id=place.checkpoint_id, channel_values=values, channel_versions=row["versions"])
    return CheckpointTuple(
        config=place.config(),
        checkpoint=cast(Checkpoint, state),
        metadata=row["metadata"],
        parent_config=place._replace(checkpoint_id=row["parent_id"]).config() if row["parent_id"] else None,
        pending_writes=[(write["task_id"], write["channel"], _loaded(serde, write)) for write in row["writes"]],
    )


def encode(body: object) -> bytes:
    """JSON without NUL characters, and with `U+FFFD` for lone surrogates: the server stores neither.

    Raises TypeError for a value without a JSON form, ValueError for NaN and infinities.
    """
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if "\\u0000" not in text:
        try:
            return text.encode()
        except UnicodeEncodeError:
            # A lone surrogate.
            pass
    return json.dumps(_clean(body), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _made_by(config: RunnableConfig, thread_id: str) -> str | None:
    """The run that a callback in the config records."""
    callbacks = config.get("callbacks")
    handlers = callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", ())
    return next((handler.run_of(thread_id) for handler in handlers if isinstance(handler, Recorder)), None)


def _is_short(value: Any) -> bool:
    kind = type(value)
    return value is None or kind in (bool, int, float) or (kind is str and len(value) <= INLINE_CHARACTERS)


def _typed(serde: SerializerProtocol, value: object) -> dict[str, str]:
    kind, data = serde.dumps_typed(value)
    return {"t": kind, "b": b64encode(data).decode("ascii")} if data else {"t": kind}


def _without_tokens(metadata: Mapping[str, object]) -> dict[str, object]:
    """Without JWTs: LangGraph copies `configurable` into the metadata, also a user's token that a service passes on."""
    return {
        name: _without_tokens(value) if isinstance(value, Mapping) else value
        for name, value in metadata.items()
        if not (isinstance(value, str) and _JWS.fullmatch(value.strip()))
    }


def _bounded(metadata: dict[str, object]) -> dict[str, object]:
    """The metadata without its longest members, and marked, if it is over the server's bound."""
    # Each member with its comma.
    sizes = {name: len(_dump({name: member})) - 1 for name, member in metadata.items()}
    total = sum(sizes.values()) + 1
    if total <= METADATA_BYTES:
        return metadata
    kept = {**metadata, TRUNCATED: True}
    total += len(_dump({TRUNCATED: True})) - 1
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if total <= METADATA_BYTES:
            break
        total -= sizes[name]
        del kept[name]
    return kept


def _loaded(serde: SerializerProtocol, typed: Mapping[str, str]) -> Any:
    return serde.loads_typed((typed["t"], b64decode(typed.get("b", ""))))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return _text(value, None)
    if isinstance(value, Mapping):
        return {_clean(name): _clean(member) for name, member in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value
