"""Live traces of the OpenAI Agents SDK in Runreel.

`pip install "runreel[openai-agents]"`

```python
from agents import add_trace_processor
from runreel.openai_agents import RunreelTraceProcessor

add_trace_processor(RunreelTraceProcessor())
```
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

try:
    from agents.tracing import Span, SpanError, Trace, TracingProcessor
    from agents.tracing.span_data import (
        AgentSpanData,
        FunctionSpanData,
        GenerationSpanData,
        GuardrailSpanData,
        HandoffSpanData,
        MCPListToolsSpanData,
        ResponseSpanData,
        SpanData,
        TaskSpanData,
        TurnSpanData,
    )
except ImportError as error:
    raise ImportError(f"{error}; the OpenAI Agents SDK comes with: pip install 'runreel[openai-agents]'") from error

from . import _ids
from ._client import Client
from ._failure import described
from ._openai_messages import answered, decoded, items_of, member, parts_of
from ._run import is_name
from ._sender import OnError
from ._settings import Verify
from ._sync.run import Run
from ._thread_ids import is_thread_id


@dataclass(slots=True)
class _Recording:
    """A trace that has not ended."""

    trace: Trace
    run_id: str
    # Created with the first span, which has the agent's name.
    run: Run | None = None
    error: SpanError | None = None
    answer: str | None = None
    heard: bool = False
    # For each open span: the parent of its children, and when it began.
    places: dict[str, tuple[str | None, float]] = field(default_factory=dict)


class RunreelTraceProcessor(TracingProcessor):
    """Records each trace as a run: `agents.add_trace_processor(RunreelTraceProcessor())`.

    The trace's name is the title, its `group_id` the thread, its first agent the run's agent, unless `agent` is given;
    its id and metadata are in the run's metadata. Agents, their turns, guardrails and custom spans are steps, function
    calls are tools, model answers are messages with their usage, and a handoff is a `custom.handoff` event. The user's
    message is taken from the input of the first model call. A run fails when its last agent failed; its output is the
    last message.

    Nothing here waits for the network. Without a `client` it creates one from `url`, `token`, `on_error` and `verify`
    (see `Client`), which `shutdown` closes. Inputs and outputs are included as far as the SDK traces them, see its
    `trace_include_sensitive_data`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        agent: str | None = None,
        tags: Iterable[str] = (),
        client: Client | None = None,
        on_error: OnError = "warn",
        verify: Verify = True,
    ) -> None:
        self.client = client or Client(url, token=token, on_error=on_error, verify=verify)
        self._closes = client is None
        self._agent = agent
        self._tags = tuple(tags)
        self._recordings: dict[str, _Recording] = {}

    def run_id(self, trace_id: str) -> str | None:
        """The run that records a trace, until the trace ends."""
        recording = self._recordings.get(trace_id)
        return recording.run_id if recording else None

    def on_trace_start(self, trace: Trace) -> None:
        if trace.trace_id in self._recordings:
            # The SDK starts a trace again when a saved run state is resumed in it.
            return
        self._recordings[trace.trace_id] = _Recording(trace, _ids.run_id())

    def on_trace_end(self, trace: Trace) -> None:
        recording = self._recordings.pop(trace.trace_id, None)
        if recording is None:
            return
        run = self._begun(recording)
        if recording.error is not None:
            run._end("run.failed", {"error": _described(recording.error)})
        else:
            run.complete(recording.answer)

    def on_span_start(self, span: Span[SpanData]) -> None:
        recording = self._recordings.get(span.trace_id)
        if recording is None:
            return
        data, parent = span.span_data, self._parent(recording, span)
        family = _family(data)
        shown = family in ("step", "tool")
        recording.places[span.span_id] = (span.span_id if shown else parent, time.monotonic())
        if shown:
            run = self._begun(recording, data.name if isinstance(data, AgentSpanData) else None)
            run.event(f"{family}.started", {"name": _name(data)}, span_id=span.span_id, parent_span_id=parent)

    def on_span_end(self, span: Span[SpanData]) -> None:
        recording = self._recordings.get(span.trace_id)
        if recording is None:
            return
        data, parent = span.span_data, self._parent(recording, span)
        _, began = recording.places.pop(span.span_id, (None, time.monotonic()))
        payload: dict[str, Any] = {"duration_ms": round((time.monotonic() - began) * 1_000, 3)}
        if isinstance(data, AgentSpanData):
            recording.error = span.error
        run = self._begun(recording)
        family, word = _family(data), "completed"
        if isinstance(data, (GenerationSpanData, ResponseSpanData)):
            self._hear(recording, data.input, parent)
            payload |= answered(data)
            texts = [part["text"] for part in payload["content"] if part["type"] == "text"]
            recording.answer = "".join(texts) or recording.answer
            if span.error:
                payload["error"] = _described(span.error)
        elif family == "handoff":
            run.event("custom.handoff", _outcome(data), span_id=span.span_id, parent_span_id=parent)
            return
        elif family:
            payload = {"name": _name(data), **_outcome(data), **payload}
            if span.error:
                word, payload["error"] = "failed", _described(span.error)
        else:
            return
        run.event(f"{family}.{word}", payload, span_id=span.span_id, parent_span_id=parent)

    def force_flush(self) -> None:
        """Waits until what was traced so far is stored, at most 30 s."""
        self.client.flush()

    def shutdown(self) -> None:
        """Sends what is queued and closes the client, unless you passed it."""
        if self._closes:
            self.client.close()

    def __enter__(self) -> RunreelTraceProcessor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.shutdown()

    def _begun(self, recording: _Recording, agent: str | None = None) -> Run:
        """The run of a trace, created at the first call; `agent` is its first agent, where that is known."""
        if recording.run is None:
            trace, exported = recording.trace, recording.trace.export() or {}
            group = str(exported.get("group_id") or "")
            recording.run = self.client.run(
                trace.name,
                agent=self._agent or (agent if is_name(agent) else None),
                thread_id=group if is_thread_id(group) else None,
                metadata={"trace_id": trace.trace_id, **(exported.get("metadata") or {})},
                tags=self._tags,
                run_id=recording.run_id,
            )
            recording.run._begin()
        return recording.run

    def _parent(self, recording: _Recording, span: Span[SpanData]) -> str | None:
        return recording.places.get(span.parent_id or "", (None, 0.0))[0]

    def _hear(self, recording: _Recording, given: object, parent: str | None) -> None:
        """Records the user's last message, once per trace."""
        if recording.heard or given is None:
            return
        recording.heard = True
        items = [{"role": "user", "content": given}] if isinstance(given, str) else items_of(given)
        positions = [position for position, item in enumerate(items) if member(item, "role") == "user"]
        if positions:
            self._begun(recording).message(parts_of([items[positions[-1]]]), role="user")


def _family(data: SpanData) -> str | None:
    """The family of a span's events; None for the span around a whole run, which the run itself shows."""
    if isinstance(data, FunctionSpanData):
        return "tool"
    if isinstance(data, (GenerationSpanData, ResponseSpanData)):
        return "message"
    if isinstance(data, HandoffSpanData):
        return "handoff"
    return None if isinstance(data, TaskSpanData) else "step"


def _name(data: SpanData) -> str:
    if isinstance(data, TurnSpanData):
        return f"turn {data.turn}"
    if isinstance(data, MCPListToolsSpanData):
        return f"tools of {data.server}"
    return str(getattr(data, "name", None) or data.type)


def _outcome(data: SpanData) -> dict[str, object]:
    """The payload of a span's end, without its name and duration."""
    if isinstance(data, FunctionSpanData):
        body = {"args": decoded(data.input), "result": data.output}
    elif isinstance(data, HandoffSpanData):
        body = {"from_agent": data.from_agent, "to_agent": data.to_agent}
    elif isinstance(data, GuardrailSpanData):
        body = {"triggered": data.triggered}
    elif isinstance(data, (AgentSpanData, TurnSpanData)):
        body = {}
    else:
        body = {"data": getattr(data, "data", None) or getattr(data, "result", None)}
    return {name: value for name, value in body.items() if value is not None}


def _described(error: SpanError) -> dict[str, object]:
    """The SDK has an error as text; the exception is known only while it propagates through the span that ends."""
    message, data = error.get("message"), error.get("data")
    text = data.get("error") if isinstance(data, Mapping) else None
    passing = sys.exc_info()[1]
    for raised in (passing, passing and passing.__cause__):
        if raised is not None and text == str(raised):
            return {**described(raised), "data": data}
    body = {"type": "SpanError", "message": f"{message}: {text}" if isinstance(text, str) else message, "data": data}
    return {name: value for name, value in body.items() if value is not None}
