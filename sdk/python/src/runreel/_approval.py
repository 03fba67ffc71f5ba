"""A question to a person: which event to wait for, and how to read the answer."""

from __future__ import annotations

from . import _routes
from ._events import Decision, Event
from ._follow import Following
from ._outbox import Target
from ._sender import Sender
from .errors import RunEnded


class Question:
    """What both kinds of approval share: everything except waiting."""

    def __init__(self, interrupt_id: str, target: Target, sender: Sender, open_ids: set[str]) -> None:
        self.interrupt_id = interrupt_id
        self.run_id = target.run_id
        self._target = target
        self._sender = sender
        self._open_ids = open_ids

    def _following(self) -> Following:
        if self._target.over is not None:
            raise RunEnded(self._target.over)
        return Following(_routes.run_stream(self.run_id), types=["interrupt.resolved"], tokens=False)

    def _decision(self, event: Event) -> Decision | None:
        if event.span_id != self.interrupt_id:
            return None
        self._open_ids.discard(self.interrupt_id)
        return Decision(str(event.payload.get("decision")), event.payload.get("value"))

    def _unanswered(self) -> RunEnded:
        return RunEnded(f"run {self.run_id} ended before {self.interrupt_id} was answered")
