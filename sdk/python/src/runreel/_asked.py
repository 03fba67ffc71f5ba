"""The interrupts at which a run stopped, and their answers, folded from its log."""

from __future__ import annotations

import time
from collections.abc import Mapping

from . import _routes
from ._events import Decision, Event
from ._follow import Following
from ._json import JsonValue
from ._sync.client import BaseClient
from ._sync.follow import follow
from .errors import RunEnded

_TYPES = ("interrupt.*", "run.interrupted")


class Asked:
    """A run's interrupts by id: those of its last stop (`waiting`), the requests, and the decisions."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.requests: dict[str, Mapping[str, JsonValue]] = {}
        self.decisions: dict[str, Decision] = {}
        self.last_seq = 0

    @property
    def open(self) -> bool:
        return any(interrupt_id not in self.decisions for interrupt_id in self.waiting)

    def take(self, event: Event) -> None:
        self.last_seq = event.seq or self.last_seq
        if event.type == "run.interrupted":
            named = event.payload.get("interrupt_ids")
            self.waiting = [str(interrupt_id) for interrupt_id in named] if isinstance(named, list) else []
        elif event.type == "interrupt.requested" and event.span_id is not None:
            self.requests[event.span_id] = event.payload
            self.decisions.pop(event.span_id, None)
        elif event.type == "interrupt.resolved" and event.span_id is not None:
            self.decisions[event.span_id] = Decision(str(event.payload.get("decision")), event.payload.get("value"))


def wait_until_answered(client: BaseClient, run_id: str, timeout: float | None) -> Asked:
    """Waits until every interrupt of the run's last stop is answered.

    Raises TimeoutError after `timeout` seconds, `RunEnded` when the run ends first.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    asked = Asked()
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
    return asked
