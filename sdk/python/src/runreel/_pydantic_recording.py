"""Records one run of a Pydantic AI agent as a Runreel run, in the hooks that Pydantic AI calls during it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, RunCancelled, SkipToolExecution
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    ToolCallPart,
    ToolReturnPart,
)

from . import _ids, _routes
from ._asked import Asked
from ._earlier import PATIENCE, pages, promptly
from ._events import Event
from ._failure import described
from ._pydantic_answer import STREAMED, Answer
from ._pydantic_messages import args_of, can_stream, jsonable, result_of, said_by_user
from ._run import is_name
from ._span_ids import Spans
from ._sync.run import Run
from ._thread_ids import is_thread_id
from .errors import RunreelError

if TYPE_CHECKING:
    from .pydantic_ai import RunreelCapability

APPROVAL = "approval"
_OPEN = ("running", "interrupted", "waiting")
_UNNAMED = "agent"

# The tool call that is being executed (its run's recording and its span id), for agents that tools call.
_within: ContextVar[tuple[Recording, str] | None] = ContextVar("runreel_within", default=None)


class Recording(AbstractCapability[Any]):
    """The capability that takes the place of `RunreelCapability` during one run."""

    id = "runreel"

    def __init__(self, owner: RunreelCapability, ctx: RunContext[Any]) -> None:
        self._owner = owner
        self._streams = owner.tokens and can_stream(ctx.model)
        self._name = (ctx.agent.name if ctx.agent else None) or _UNNAMED
        self._began = time.monotonic()
        self._run: Run | None = None
        self._parent: tuple[Recording, str] | None = None
        self._answering: Answer | None = None
        # A model may reuse a call id, even for concurrent calls: spans and questions are numbered.
        self._spans = Spans()
        # The ids of the last answer's calls that have ended in the log; open interrupts by the id of their call.
        self._ended: set[str] = set()
        self._open: dict[str, str] = {}

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        # Records what the program gets, after all other capabilities.
        return CapabilityOrdering(position="outermost")

    @property
    def has_on_event(self) -> bool:
        return self._streams

    def listens_to(self, event: AgentStreamEvent) -> bool:
        return self._streams and isinstance(event, STREAMED)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        with self._owner._unharmed():
            await self._begin(ctx)
        try:
            result = await handler()
        except BaseException as error:
            with self._owner._unharmed():
                self._break(error)
            raise
        with self._owner._unharmed():
            self._finish(result.output)
        return result

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        with self._owner._unharmed():
            if self._answering is not None:
                self._answering.take(event)

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: Any, handler: Any) -> ModelResponse:
        with self._owner._unharmed():
            self._break_off(None)
            await self._settle(request_context.messages)
            self._answering = None if self._run is None else Answer(self._run)
        try:
            response: ModelResponse = await handler(request_context)
        except asyncio.CancelledError:
            # Also raised when a stream fails; the run then reports the failure.
            raise
        except BaseException as error:
            with self._owner._unharmed():
                self._break_off(error)
            raise
        with self._owner._unharmed():
            self._ended.clear()
            answer, self._answering = self._answering, None
            if answer is not None:
                answer.complete(response)
        return response

    async def wrap_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        try:
            return await handler(args)
        except (ValidationError, ModelRetry) as error:
            with self._owner._unharmed():
                span_id = self._start(call.tool_call_id, call.tool_name, args_of(call))
                self._end(span_id, call, {"error": described(error)}, time.monotonic())
            raise

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        began, span_id = time.monotonic(), ""
        with self._owner._unharmed():
            if ctx.tool_call_approved:
                await self._answer(call.tool_call_id, "approve", None)
            span_id = self._start(call.tool_call_id, call.tool_name, jsonable(args))
        place = _within.set((self, span_id))
        try:
            result = await handler(args)
        except (CallDeferred, ApprovalRequired):
            # The call continues once it is answered, perhaps in another process.
            self._spans.leave("tool", span_id, paused=True)
            raise
        except SkipToolExecution as skipped:
            with self._owner._unharmed():
                self._end(span_id, call, {"result": result_of(skipped.result)}, began)
            raise
        except BaseException as error:
            with self._owner._unharmed():
                self._end(span_id, call, {"error": described(_cause(error))}, began)
            raise
        finally:
            _within.reset(place)
        with self._owner._unharmed():
            self._end(span_id, call, {"result": result_of(result)}, began)
        return result

    async def _begin(self, ctx: RunContext[Any]) -> None:
        owner, within = self._owner, _within.get()
        if within is not None and within[0]._owner.client is owner.client and within[0].is_open:
            self._parent = within
        self._ended = _returned(ctx.messages)
        thread_id = ctx.conversation_id if is_thread_id(ctx.conversation_id) else None
        waiting = _waiting(ctx.messages)
        run = None
        if waiting and thread_id:
            # If the earlier state cannot be read, the run is recorded as a new one.
            with owner._unharmed():
                # In a thread, so that the event loop is not blocked.
                run = await asyncio.to_thread(self._continued, thread_id, waiting)
        if run is None:
            run = self._created(ctx, thread_id)
        self._run = run
        owner._remember(ctx.run_id, run.run_id)

    def _created(self, ctx: RunContext[Any], thread_id: str | None) -> Run:
        owner, parent = self._owner, self._parent
        is_ours = _ids.is_fresh_run_id(ctx.run_id)
        parts = said_by_user(ctx.prompt, ctx.messages)
        metadata = {**(ctx.metadata or {}), **(owner.metadata or {})}
        run = owner.client.run(
            self._name,
            agent=owner.agent or (self._name if is_name(self._name) else None),
            # A child is in its parent's thread.
            thread_id=thread_id if parent is None else None,
            parent=None if parent is None else parent[0]._run,
            role="agent" if parent is None else "worker",
            input=ctx.prompt if isinstance(ctx.prompt, str) else (parts or None),
            metadata=metadata or None,
            tags=owner.tags,
            run_id=ctx.run_id if is_ours else None,
            external_id=None if is_ours else ctx.run_id,
        )
        run._begin()
        if parent is not None:
            self._report("spawned", {"agent": owner.agent or self._name}, run.run_id)
        if parts:
            run.message(parts, role="user")
        return run

    def _continued(self, thread_id: str, waiting: set[str]) -> Run | None:
        """The run that was interrupted for these calls; None when the log has none."""
        client = self._owner.client
        client.flush(PATIENCE)
        for record in pages(client, _routes.runs(thread_id=thread_id, status=_routes.words(_OPEN)), "runs"):
            asked, spans = Asked(), Spans()
            for envelope in pages(
                client, _routes.events(record["run_id"], 0, ("run.*", "interrupt.*", "tool.*")), "events"
            ):
                event = Event.of(envelope, str(envelope["seq"]))
                asked.take(event)
                spans.recall(event)
            calls = {str(request.get("tool_call_id")): name for name, request in asked.requests.items()}
            if waiting & calls.keys():
                self._spans = spans
                self._open = {call: name for call, name in calls.items() if name not in asked.decisions}
                run = client.attach(record["run_id"])
                if record["status"] != "running":
                    run.event("run.resumed", {})
                return run
        return None

    @property
    def is_open(self) -> bool:
        return self._run is not None and not self._run.ended

    def _finish(self, output: object) -> None:
        if self._run is None:
            return
        self._break_off(None)
        if isinstance(output, DeferredToolRequests):
            self._ask(output)
            return
        self._run.output = jsonable(output)
        self._run._leave(None)
        self._report("completed", {"duration_ms": _since(self._began)}, self._run.run_id)

    def _break(self, error: BaseException) -> None:
        if self._run is None:
            return
        self._break_off(error)
        if isinstance(error, RunCancelled):
            self._run.cancel(type(error).__name__)
        self._run._leave(error)
        outcome = {"error": described(error), "duration_ms": _since(self._began)}
        self._report("failed", outcome, self._run.run_id)

    def _report(self, word: str, outcome: Mapping[str, object], run_id: str) -> None:
        """Records the progress of this run in its parent's log."""
        parent, span_id = self._parent or (None, None)
        if parent is not None and parent._run is not None:
            payload = {"run_id": run_id, "name": self._name, **outcome}
            parent._run.event(f"worker.{word}", payload, span_id=run_id, parent_span_id=span_id)

    def _ask(self, requests: DeferredToolRequests) -> None:
        run, waiting = self._run, []
        if run is None:
            return
        for call in (*requests.approvals, *requests.calls):
            kind = requests.kind(call.tool_call_id)
            interrupt_id = self._open.get(call.tool_call_id)
            if interrupt_id is None:
                interrupt_id, _ = self._spans.enter("interrupt", f"{kind}:{call.tool_call_id}")
                asks = "Approve the call" if kind == APPROVAL else "Give the result of the call"
                payload = {
                    "kind": kind,
                    "prompt": f"{asks} of {call.tool_name}",
                    "tool_call_id": call.tool_call_id,
                    "tool": call.tool_name,
                    "args": args_of(call),
                    "metadata": jsonable(requests.metadata.get(call.tool_call_id)),
                }
                members = {name: value for name, value in payload.items() if value is not None}
                run.event("interrupt.requested", members, span_id=interrupt_id)
            waiting.append(interrupt_id)
        run.event("run.interrupted", {"interrupt_ids": waiting})
        run.detach()
        run._leave(None)

    def _break_off(self, error: BaseException | None) -> None:
        answer, self._answering = self._answering, None
        if answer is not None:
            answer.break_off(error)

    async def _settle(self, messages: list[ModelMessage]) -> None:
        """Records what no hook has seen of a request: rejected, denied and external calls, rejected answers."""
        if self._run is None or not messages or not isinstance(messages[-1], ModelRequest):
            return
        for part in messages[-1].parts:
            if isinstance(part, RetryFeedbackPart):
                self._run.log.warn("the model was asked again", reason=jsonable(part.content))
            elif isinstance(part, ToolReturnPart) and part.tool_call_id not in self._ended:
                call_id, content = part.tool_call_id, jsonable(part.content)
                succeeded = part.outcome == "success"
                await self._answer(call_id, "respond" if succeeded else "reject", content)
                span_id = self._start(call_id, part.tool_name, _args_in(messages, call_id))
                error = {"type": part.outcome, "message": content if isinstance(content, str) else str(content)}
                self._end(span_id, part, {"result": content} if succeeded else {"error": error}, None)

    async def _answer(self, call_id: str, decision: str, value: object) -> None:
        """Records an answer given by the program itself, instead of by a person through the API."""
        interrupt_id = self._open.pop(call_id, None)
        if interrupt_id is not None and self._run is not None:
            self._spans.leave("interrupt", interrupt_id)
            try:
                call = _routes.resume(self._run.run_id, interrupt_id, decision, value)
                await asyncio.to_thread(promptly, self._owner.client, call)
            except RunreelError as error:
                # Another answer came first, or the server is unreachable; the call itself is logged in any case.
                self._run.log.warn("an answer was not recorded", interrupt_id=interrupt_id, reason=str(error))

    def _start(self, call_id: str, name: str, args: object) -> str:
        """The span of a call that starts now or continues."""
        span_id, begins = self._spans.enter("tool", call_id)
        if begins and self._run is not None:
            self._run.event("tool.started", {"name": name, "args": args}, span_id=span_id)
        return span_id

    def _end(
        self, span_id: str, call: ToolCallPart | ToolReturnPart, outcome: Mapping[str, object], began: float | None
    ) -> None:
        if self._run is None or not span_id:
            return
        self._ended.add(call.tool_call_id)
        self._spans.leave("tool", span_id)
        word = "failed" if "error" in outcome else "completed"
        took = {} if began is None else {"duration_ms": _since(began)}
        payload = {"name": call.tool_name, **outcome, **took}
        self._run.event(f"tool.{word}", payload, span_id=span_id)


def _returned(history: list[ModelMessage]) -> set[str]:
    """The ids of the last answer's calls that have a result; earlier answers may have used the same ids."""
    returned: set[str] = set()
    for message in history:
        if isinstance(message, ModelResponse):
            returned.clear()
        else:
            returned |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
    return returned


def _waiting(history: list[ModelMessage]) -> set[str]:
    """The ids of the last answer's calls that have no result."""
    last = next((message for message in reversed(history) if isinstance(message, ModelResponse)), None)
    return {call.tool_call_id for call in last.tool_calls} - _returned(history) if last else set()


def _args_in(messages: list[ModelMessage], call_id: str) -> object:
    responses = [message for message in reversed(messages) if isinstance(message, ModelResponse)]
    calls = [call for response in responses for call in response.tool_calls if call.tool_call_id == call_id]
    return args_of(calls[0]) if calls else None


def _cause(error: BaseException) -> BaseException:
    """The exception a tool raised, rather than the one Pydantic AI wraps it in for the model."""
    return (
        error.__cause__ if type(error).__name__ in ("ToolRetryError", "ToolFailedError") and error.__cause__ else error
    )


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1_000, 3)
