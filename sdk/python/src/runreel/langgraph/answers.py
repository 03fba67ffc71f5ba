"""People's answers to the interrupts of a graph, and how it resumes with them."""

from __future__ import annotations

from collections.abc import Mapping

from langgraph.types import Command

from .._asked import wait_until_answered
from .._client import Client
from .._events import Decision
from .._json import JsonValue
from .._span_ids import name_of

BREAKPOINT = "breakpoint:"


class Answers(dict[str, Decision]):
    """Decisions by the id LangGraph gave the interrupt."""

    def __init__(self, decisions: Mapping[str, Decision], requests: Mapping[str, JsonValue]) -> None:
        super().__init__(decisions)
        self._requests = requests

    def command(self) -> Command[str] | None:
        """The input that resumes the graph: `graph.invoke(answers.command(), config)`.

        An interrupt is answered with the value the person sent. Without one it is `True` when approved and `False`
        otherwise; LangChain's human-in-the-loop middleware gets its `{"decisions": [{"type": "approve"}]}`. Returns
        None at a breakpoint (`interrupt_before`), which asks no question: LangGraph expects None there.
        """
        resume = {
            name: _value(decision, self._requests.get(name))
            for name, decision in self.items()
            if not name.startswith(BREAKPOINT)
        }
        return Command(resume=resume) if resume else None


def wait_for_answers(client: Client, run_id: str, timeout: float | None) -> Answers:
    """Waits until every interrupt of the graph's last stop is answered. See `RunreelCallback`."""
    asked = wait_until_answered(client, run_id, timeout)
    waiting = {name_of(span_id): span_id for span_id in asked.waiting}
    return Answers(
        {name: asked.decisions[span_id] for name, span_id in waiting.items()},
        {name: asked.requests.get(span_id, {}).get("value") for name, span_id in waiting.items()},
    )


def _value(decision: Decision, request: JsonValue | None) -> JsonValue:
    if decision.value is not None:
        return decision.value
    if isinstance(request, Mapping) and isinstance(calls := request.get("action_requests"), list):
        return {"decisions": [{"type": "approve" if decision.approved else "reject"} for _ in calls]}
    return decision.approved
