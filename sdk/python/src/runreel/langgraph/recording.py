"""One outermost call of a graph as a Runreel run: how it starts or resumes, what it asks, and how it ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from langgraph.callbacks import GraphInterruptEvent, GraphResumeEvent
from langgraph.types import Command, Interrupt

from .. import _routes
from .._client import Client
from .._earlier import pages, promptly
from .._events import Event, RunRecord
from .._payload import encoded
from .._span_ids import Spans, name_of
from .._spans import Scope
from .._sync.run import Run
from ..errors import ApiError
from .answers import BREAKPOINT
from .messages import asked, parts_of, role_of, said_by_user, shown

log = logging.getLogger("runreel")


class Recording:
    """A run while the graph works on it."""

    def __init__(self, client: Client, run: Run) -> None:
        self.run = run
        self.spans = Spans()
        self._client = client
        self._inputs: object = None
        self._rests = False
        self._stops: list[GraphInterruptEvent] = []

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @classmethod
    def begun(cls, client: Client, run: Run, inputs: object) -> Recording:
        """A run that is created now."""
        run.__enter__()
        recording = cls(client, run)
        recording._take_in(inputs)
        return recording

    @classmethod
    def gone_on(cls, client: Client, record: RunRecord, inputs: object) -> Recording:
        """An existing run, whose open spans are read from its log. Raises like `found`."""
        run_id = record["run_id"]
        recording = cls(client, client.attach(run_id))
        for envelope in pages(client, _routes.events(run_id, 0, ("step.*", "tool.*", "interrupt.*")), "events"):
            recording.spans.recall(Event.of(envelope, str(envelope["seq"])))
        recording._rests = record["status"] in ("interrupted", "waiting")
        if goes_on(inputs):
            recording._inputs = inputs
        else:
            recording._resumed({})
            recording._take_in(inputs)
        return recording

    def within(self, span_id: str | None) -> Scope[object]:
        """The scope for events in a span, or in the run itself."""
        return self.run if span_id is None else Scope(self.run._emit, self.run.run_id, span_id, self.run._upload)

    def resume(self, event: GraphResumeEvent) -> None:
        """The graph resumes. Answers given by the program itself, not by a person through the API, are recorded."""
        answered = False
        for interrupt_id, value in self._answers():
            try:
                decision = "respond" if value is not None else "approve"
                promptly(self._client, _routes.resume(self.run_id, interrupt_id, decision, value))
                answered = True
            except ApiError as error:
                # Another answer came first, and is in the log.
                log.warning("interrupt %s of run %s: %s", interrupt_id, self.run_id, error)
            self.spans.leave("interrupt", interrupt_id)
        if answered:
            self._rests = False
        self._resumed({"checkpoint_id": event.checkpoint_id, "ns": "|".join(event.checkpoint_ns)})

    def interrupt(self, event: GraphInterruptEvent) -> None:
        """The graph stops. All stops are recorded together when the call ends."""
        self._stops.append(event)

    def end(self, outputs: object) -> None:
        """The call returned: the run is over, or it was interrupted."""
        if self._stops:
            self._stop()
            return
        self._close_abandoned()
        self.run.output = shown(outputs)
        self.run.__exit__(None, None, None)

    def fail(self, error: BaseException) -> None:
        self._close_abandoned()
        self.run.__exit__(type(error), error, None)

    def wait(self, reason: str) -> None:
        """The graph was asked to stop where it is, to resume later."""
        self.run.event("run.waiting", {"reason": reason})
        self._leave()

    def _take_in(self, inputs: object) -> None:
        for message in said_by_user(inputs):
            self.run.message(parts_of(message), role=role_of(message))

    def _resumed(self, payload: Mapping[str, object]) -> None:
        if self._rests:
            self._rests = False
            self.run.event("run.resumed", payload)

    def _answers(self) -> Iterable[tuple[str, object]]:
        """The open interrupts that the input answers, each with its value: None at a breakpoint, which asks nothing."""
        resume = self._inputs.resume if isinstance(self._inputs, Command) else None
        by_id = isinstance(resume, Mapping) and resume and all(map(_is_interrupt_id, resume))
        for interrupt_id in self.spans.paused("interrupt"):
            name = name_of(interrupt_id)
            if name.startswith(BREAKPOINT):
                yield interrupt_id, None
            elif resume is not None and (not by_id or name in resume):
                yield interrupt_id, json.loads(encoded(shown(resume[name] if by_id else resume)))

    def _stop(self) -> None:
        waiting = []
        last = self._stops[-1]
        for event in self._stops:
            place = {"checkpoint_id": event.checkpoint_id, "ns": "|".join(event.checkpoint_ns)}
            for interrupt in event.interrupts or (_breakpoint(event),):
                interrupt_id, is_new = self.spans.enter("interrupt", interrupt.id)
                self.spans.leave("interrupt", interrupt_id, paused=True)
                waiting.append(interrupt_id)
                if is_new:
                    self.run.event("interrupt.requested", {**asked(interrupt), **place}, span_id=interrupt_id)
        self.run.event("run.interrupted", {"interrupt_ids": waiting, "checkpoint_id": last.checkpoint_id})
        self._leave()

    def _leave(self) -> None:
        self.run.detach()
        self.run.__exit__(None, None, None)

    def _close_abandoned(self) -> None:
        """Ends the spans that were interrupted and never resumed."""
        error = {"type": "Abandoned", "message": "the graph continued without it"}
        for span_id in self.spans.paused("tool"):
            self.run.event("tool.failed", {"error": error}, span_id=span_id)
        for span_id in self.spans.paused("step"):
            self.run.event("step.failed", {"error": error}, span_id=span_id)


def goes_on(inputs: object) -> bool:
    """Whether this input continues the thread's earlier work, rather than starts anew."""
    return inputs is None or isinstance(inputs, Command)


def _is_interrupt_id(text: object) -> bool:
    return isinstance(text, str) and len(text) == 32 and all(character in "0123456789abcdef" for character in text)


def _breakpoint(event: GraphInterruptEvent) -> Interrupt:
    where = "after the last" if event.status == "interrupt_after" else "before the next"
    value = {"kind": "approval", "prompt": f"The graph stopped {where} step"}
    return Interrupt(value=value, id=f"{BREAKPOINT}{event.checkpoint_id}")
