"""Data read from the server: events, people's answers, and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ._json import JsonValue

RunStatus = Literal["queued", "running", "waiting", "interrupted", "completed", "failed", "cancelled"]
Answer = Literal["approve", "reject", "respond"]
TERMINAL_TYPES = frozenset({"run.completed", "run.failed", "run.cancelled"})


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run.

    `seq` counts 1, 2, 3 … in each run; it is None for what is never stored: deltas (`message.delta` and other types
    with that suffix) and `message.snapshot`, the text so far of a span. Both carry `payload["text"]` and
    `payload["offset"]`, in characters: a delta whose offset is the length you have is appended, a snapshot replaces
    what you have (its `payload["type"]` is the type of those deltas), and the durable event that closes the span holds
    the whole text. `at` is RFC 3339 in UTC (None in a snapshot). `id` is the cursor to resume a stream after this
    event; None when a stream cannot resume there. `owner_id` is the principal key of the run's owner.
    """

    run_id: str
    type: str
    seq: int | None = None
    role: str = "agent"
    agent: str | None = None
    owner_id: str = ""
    span_id: str | None = None
    parent_span_id: str | None = None
    event_id: str | None = None
    at: str | None = None
    payload: dict[str, JsonValue] = field(default_factory=dict)
    id: str | None = None

    @classmethod
    def of(cls, envelope: Mapping[str, JsonValue], cursor: str | None = None) -> Event:
        """An event from the envelope the server writes; members unknown to this version are ignored."""
        known: dict[str, Any] = {name: envelope[name] for name in _MEMBERS if name in envelope}
        return cls(**known, id=cursor)

    @property
    def text(self) -> str:
        """The text of a delta, a snapshot, or a message; empty for everything else."""
        text = self.payload.get("text")
        if isinstance(text, str):
            return text
        content = self.payload.get("content")
        parts = content if isinstance(content, list) else []
        texts = (part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text")
        return "".join(text for text in texts if isinstance(text, str))


_MEMBERS = tuple(name for name in Event.__dataclass_fields__ if name != "id")


@dataclass(frozen=True, slots=True)
class Decision:
    """How an interrupt was answered.

    `decision` is `approve`, `reject`, `respond`, `expired` (no answer in time) or `cancelled` (the run was cancelled);
    `value` is what the person sent with it.
    """

    decision: str
    value: JsonValue = None

    @property
    def approved(self) -> bool:
        """True only for `approve`."""
        return self.decision == "approve"


class UsageRecord(TypedDict):
    """Totals of a run's model calls. `cost_usd` is None if no cost is known; with `is_partial` some calls have none."""

    calls: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    is_partial: bool


class RunFields(TypedDict, total=False):
    """The fields of a new run. A missing one has the method's default, or else the server's.

    `agent` is the name of the agent that acts in it, `role` is its role (`agent` unless given). `thread_id` and
    `session_id` default to the parent's. `title` is at most 512 characters, `input` and `metadata` at most 64 KiB each,
    `tags` at most 32 names.

    `lease_ms` is how long its program may be silent before the run is reported as stalled, in milliseconds. `ttl_s` is
    how long the server keeps it and its descendants after the last of them has ended: in seconds, at most 315 360 000;
    0 means for ever.
    """

    agent: str | None
    role: Literal["agent", "supervisor", "worker"]
    thread_id: str | None
    session_id: str | None
    title: str | None
    input: object
    metadata: Mapping[str, object] | None
    tags: Iterable[str]
    lease_ms: int | None
    ttl_s: int | None


class RunRecord(TypedDict):
    """A run as stored by the server; times are RFC 3339 in UTC."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    owner_id: str
    external_id: str | None
    ttl_s: int | None
    thread_id: str | None
    session_id: str | None
    agent: str | None
    role: str
    title: str | None
    status: RunStatus
    input: JsonValue
    output: JsonValue
    error: JsonValue
    metadata: dict[str, JsonValue]
    tags: list[str]
    last_seq: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    last_event_at: str
    stalled: bool
    usage: UsageRecord | None
    stream_url: str


class ThreadRecord(TypedDict):
    """A thread. `ttl_s` is its time to live in seconds: 0 for "never expires", None for the server's default."""

    thread_id: str
    owner_id: str
    metadata: dict[str, JsonValue]
    ttl_s: int | None
    latest_checkpoint_id: str | None
    created_at: str
    updated_at: str
    expires_at: str | None
    stream_url: str


class MessageRecord(TypedDict):
    """A message of a thread. `text` is the joined text of the parts in `content`."""

    run_id: str
    seq: int
    message_id: str | None
    role: str
    agent: str | None
    content: JsonValue
    text: str
    at: str


class Timeline(TypedDict):
    """Spans and totals, computed from the log on request; times in milliseconds."""

    run_id: str
    last_seq: int
    started_at: str | None
    spans: list[dict[str, JsonValue]]
    spans_omitted: int
    summary: dict[str, JsonValue]


class Removed(TypedDict):
    """What a prune removed, as counts."""

    threads: int
    checkpoints: int
    writes: int
    blobs: int


class ArtifactRecord(TypedDict):
    """An artifact as the server describes it. `sha256` is the hash of its content, `url` the path to read it from."""

    artifact_id: str
    name: str
    media_type: str
    size: int
    sha256: str
    url: str
