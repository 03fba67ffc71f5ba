"""LangChain's callbacks of a running graph, turned into spans and messages of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent
from langgraph.errors import GraphBubbleUp, GraphDrained, GraphInterrupt

from .._failure import described
from .._spans import Message, Scope
from .messages import completed, result_of, shown, text_of
from .recording import Recording
from .wire import Recorder

_NODE_TAG = "graph:step:"
# LangGraph's name for an unnamed graph.
_UNNAMED = "LangGraph"
# Number of ended runnables to remember. The calls that a cancelled node still makes come soon after its end.
REMEMBERED = 10_000


@dataclass(slots=True)
class Frame:
    """A running runnable, and its span.

    Its children emit into `scope`: its own span's, or `within` if it is not shown. `task` is LangGraph's id of the
    node's task.
    """

    recording: Recording
    kind: Literal["run", "step", "tool", "message", "hidden"]
    name: str
    within: Scope[object]
    scope: Scope[object]
    task: str
    began: float
    message: Message | None = None

    def milliseconds(self) -> float:
        return round((time.monotonic() - self.began) * 1_000, 3)


class Observer(GraphCallbackHandler, Recorder):
    """Tracks the runnables. `RunreelCallback` decides what a run is and when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self._frames: dict[UUID, Frame] = {}
        # Ended runnables, in the order in which they ended.
        self._over: dict[UUID, None] = {}
        self._over_lock = threading.Lock()

    def _begin(self, name: str, inputs: object, metadata: Mapping[str, object]) -> Recording:
        raise NotImplementedError

    def _end(self, recording: Recording, outputs: object, error: BaseException | None) -> None:
        raise NotImplementedError

    def on_chain_start(
        self,
        serialized: dict[str, object] | None,
        inputs: object,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        name = str(kwargs.get("name") or _UNNAMED)
        metadata = metadata or {}
        parent = self._parent(run_id, parent_run_id)
        if parent is None:
            if run_id in self._over:
                return
            try:
                recording = self._begin(name, inputs, metadata)
            except BaseException:
                # Its children must not become runs of their own.
                self._remember(run_id)
                raise
            run = recording.run
            self._frames[run_id] = Frame(recording, "run", name, run, run, "", time.monotonic())
            return
        if not any(tag.startswith(_NODE_TAG) for tag in tags or ()):
            # A branch, a parser, a channel's writer, or a graph, as its first node will show.
            within = parent.scope
            shown_as = "" if name in (_UNNAMED, parent.name) else name
            self._frames[run_id] = Frame(
                parent.recording, "hidden", shown_as, within, within, parent.task, time.monotonic()
            )
            return
        self._show_graph(parent)
        task = str(metadata.get("langgraph_checkpoint_ns", "")).rpartition("|")[2].partition(":")[2] or run_id.hex
        self._frames[run_id] = self._open(parent, "step", name, task, {"step": metadata.get("langgraph_step")})

    def on_chain_end(self, outputs: object, *, run_id: UUID, **kwargs: object) -> None:
        frame = self._leave(run_id)
        if frame is None:
            return
        if frame.kind == "run":
            self._end(frame.recording, outputs, None)
        else:
            self._close(frame, {})

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        frame = self._leave(run_id)
        if frame is None:
            return
        if frame.kind == "run":
            self._end(frame.recording, None, error)
        else:
            self._close(frame, {}, error)

    def on_tool_start(
        self,
        serialized: dict[str, object] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        parent = self._parent(run_id, parent_run_id)
        if parent is not None:
            name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
            args = shown(inputs) if inputs is not None else input_str
            call = str(kwargs.get("tool_call_id") or run_id.hex)
            self._frames[run_id] = self._open(parent, "tool", name, call, {"args": args})

    def on_tool_end(self, output: object, *, run_id: UUID, **kwargs: object) -> None:
        frame = self._leave(run_id)
        if frame is None:
            return
        if isinstance(output, ToolMessage) and output.status == "error":
            self._close(frame, {"error": {"type": "ToolError", "message": str(output.content)}}, word="failed")
        else:
            self._close(frame, {"result": result_of(output)})

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        self.on_chain_error(error, run_id=run_id)

    def on_retriever_start(
        self,
        serialized: dict[str, object] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: object,
    ) -> None:
        name = str(kwargs.get("name") or "retriever")
        self.on_tool_start(None, query, run_id=run_id, parent_run_id=parent_run_id, inputs={"query": query}, name=name)

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: object) -> None:
        found = [{"page_content": document.page_content, "metadata": document.metadata} for document in documents]
        self.on_tool_end(found, run_id=run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        self.on_chain_error(error, run_id=run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, object] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        parent = self._parent(run_id, parent_run_id)
        if parent is not None:
            within, model = parent.scope, str((metadata or {}).get("ls_model_name") or "")
            message = within.message(span_id=f"message-{run_id.hex}")
            self._frames[run_id] = Frame(
                parent.recording, "message", model, within, within, "", time.monotonic(), message
            )

    def on_llm_start(
        self,
        serialized: dict[str, object] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        self.on_chat_model_start(serialized, [], run_id=run_id, parent_run_id=parent_run_id, metadata=metadata)

    def on_llm_new_token(self, token: str | list[str | dict[str, object]], *, run_id: UUID, **kwargs: object) -> None:
        frame = self._frames.get(run_id)
        if frame is not None and frame.message is not None:
            frame.message.token(text_of(token))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: object) -> None:
        frame = self._leave(run_id)
        if frame is not None:
            self._close_message(frame, completed(response, frame.name or None))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        frame = self._leave(run_id)
        if frame is not None and frame.message is not None:
            # The contract has no failed message: the text so far is kept, together with the error.
            parts = [{"type": "text", "text": frame.message.text}]
            self._close_message(frame, {"role": "assistant", "content": parts, "error": described(error)})

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        frame = self._frames.get(event.run_id) if event.run_id else None
        if frame is not None:
            frame.recording.interrupt(event)

    def on_resume(self, event: GraphResumeEvent) -> None:
        frame = self._frames.get(event.run_id) if event.run_id else None
        # Subgraphs resume as well; the run resumes once.
        if frame is not None and not event.checkpoint_ns:
            frame.recording.resume(event)

    def _parent(self, run_id: UUID, parent_run_id: UUID | None) -> Frame | None:
        """The frame around a runnable; None for an outermost one, and for one within an ended one.

        A cancelled node continues in its thread; a runnable it then calls counts as ended.
        """
        if parent_run_id is None:
            return self._around()
        frame = self._frames.get(parent_run_id)
        if frame is None and parent_run_id in self._over:
            self._remember(run_id)
        return frame

    def _around(self) -> Frame | None:
        """The frame that is being executed, for calls with this callback in a config of their own."""
        config = var_child_runnable_config.get() or {}
        place = getattr(config.get("callbacks"), "parent_run_id", None)
        return None if place is None else self._frames.get(place)

    def _leave(self, run_id: UUID) -> Frame | None:
        self._remember(run_id)
        return self._frames.pop(run_id, None)

    def _remember(self, run_id: UUID) -> None:
        with self._over_lock:
            self._over[run_id] = None
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]

    def _show_graph(self, frame: Frame) -> None:
        """Shows a subgraph as a step if it has a name other than its node's."""
        if frame.kind == "hidden" and frame.name:
            opened = self._open(frame, "step", frame.name, f"{frame.task}:{frame.name}", {})
            frame.kind, frame.scope = "step", opened.scope

    def _open(
        self, parent: Frame, kind: Literal["step", "tool"], name: str, task: str, members: Mapping[str, object]
    ) -> Frame:
        """Starts a span within the parent's, or continues the one that was interrupted."""
        within = parent.scope
        span_id, begins = parent.recording.spans.enter(kind, task)
        if begins:
            payload = {"name": name, **{member: value for member, value in members.items() if value is not None}}
            within.event(f"{kind}.started", payload, span_id=span_id)
        scope = parent.recording.within(span_id)
        return Frame(parent.recording, kind, name, within, scope, task, time.monotonic())

    def _close(
        self, frame: Frame, body: Mapping[str, object], error: BaseException | None = None, word: str = "completed"
    ) -> None:
        if frame.kind not in ("step", "tool") or frame.scope.span_id is None:
            return
        if isinstance(error, (GraphInterrupt, GraphDrained)):
            frame.recording.spans.leave(frame.kind, frame.scope.span_id, paused=True)
            return
        frame.recording.spans.leave(frame.kind, frame.scope.span_id)
        # `Command(graph=Command.PARENT)` is raised as an exception, but is not an error.
        if error is not None and not isinstance(error, GraphBubbleUp):
            word, body = "failed", {"error": described(error)}
        payload = {"name": frame.name, **body, "duration_ms": frame.milliseconds()}
        frame.within.event(f"{frame.kind}.{word}", payload, span_id=frame.scope.span_id)

    def _close_message(self, frame: Frame, payload: dict[str, object]) -> None:
        if frame.message is not None:
            payload["duration_ms"] = frame.milliseconds()
            frame.within.event("message.completed", payload, span_id=frame.message.span_id)
