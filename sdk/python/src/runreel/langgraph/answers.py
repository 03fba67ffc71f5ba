"""People's answers to the interrupts of a graph, and how it resumes with them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from langgraph.types import Command

from .. import _routes
from .._client import Client
from .._events import Decision, Event
from .._follow import Following
from .._json import JsonValue
from .._sync.follow import follow
from ..errors import RunEnded
from .spans import name_of

BREAKPOINT = "breakpoint:"
_TYPES = ("interrupt.*", "run.interrupted")


class Answers(dict[str, Decision]):
    """Decisions by the id LangGraph gave the interrupt."""

    def __init__(self, decisions: Mapping[str, Decision], requests: Mapping[str, JsonValue]) -> None:
        super().__init__(decisions)
        self._requests = requests

    def command(self) -> Command[str] | None:
        """The input that resumes the graph: `graph.invoke(answers.command(), config)`.

        An interrupt is answered with the value the person sent. Without one it is `True` when approved and `False`
        otherwise; LangChain's human-in-the-loop middleware gets its `{"decisions": [{"type": "approve"}]}`. None, which
        is what LangGraph expects at a breakpoint (`interrupt_before`), which asks no question.
        """
        resume = {
            name: _value(decision, self._requests.get(name))
            for name, decision in self.items()
            if not name.startswith(BREAKPOINT)
        }
        return Command(resume=resume) if resume else None


def wait_for_answers(client: Client, run_id: str, timeout: float | None) -> Answers:
    """Waits until every interrupt of the graph's last stop is answered. See `RunreelCallback`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    asked = _Asked()
    for event in client.events(run_id, types=_TYPES):
        asked.take(event)
    if asked.open:
        following = Following(_routes.run_stream(run_id), after=asked.last_seq, types=_TYPES, tokens=False)
        for event in follow(client._transport, following, deadline):
            asked.take(event)
            if not asked.open:
                break
        else:
            raise RunEnded(f"run {run_id} ended before all interrupts were answered")
    return Answers({name: asked.decisions[name] for name in asked.waiting}, asked.requests)


class _Asked:
    """What was asked and answered, folded from the log."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.requests: dict[str, JsonValue] = {}
        self.decisions: dict[str, Decision] = {}
        self.last_seq = 0

    @property
    def open(self) -> bool:
        return any(name not in self.decisions for name in self.waiting)

    def take(self, event: Event) -> None:
        self.last_seq = event.seq or self.last_seq
        if event.type == "run.interrupted":
            named = event.payload.get("interrupt_ids")
            self.waiting = [name_of(str(span_id)) for span_id in named] if isinstance(named, list) else []
        elif event.span_id is not None:
            name = name_of(event.span_id)
            if event.type == "interrupt.requested":
                self.requests[name] = event.payload.get("value")
                self.decisions.pop(name, None)
            else:
                self.decisions[name] = Decision(str(event.payload.get("decision")), event.payload.get("value"))


def _value(decision: Decision, request: JsonValue | None) -> JsonValue:
    if decision.value is not None:
        return decision.value
    if isinstance(request, Mapping) and isinstance(calls := request.get("action_requests"), list):
        return {"decisions": [{"type": "approve" if decision.approved else "reject"} for _ in calls]}
    return decision.approved
