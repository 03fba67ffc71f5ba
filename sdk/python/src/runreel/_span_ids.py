"""Unique ids for the spans that frameworks name, including those of an earlier process."""

from __future__ import annotations

import threading

from . import _ids
from ._events import Event

_NEVER = (0, "over")
# Leaves room for `#` and a number.
NAME_CHARACTERS = 110


class Spans:
    """Assigns ids to spans, so that each represents one operation, whatever a framework or a model calls it.

    LangGraph runs an interrupted node again from its start, as the same task, and with it the tool calls the node had
    not finished. Each continues in its span: one bar, from the first start to the end. An operation that had ended and
    happens again under the same id, such as a retry or the next call of a model that counts from 0 in each answer, is
    another span, `<id>#2`. An id that is long, or that ends like such a number, is replaced by its digest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By kind (`step`, `tool`, `interrupt`) and name: which attempt it is, and `working`, `paused` or `over`.
        self._known: dict[tuple[str, str], tuple[int, str]] = {}

    def enter(self, kind: str, name: str) -> tuple[str, bool]:
        """The span's id, and whether it starts now rather than continues."""
        name = _ids.fitted(name, NAME_CHARACTERS) if _parsed(name)[0] == name else _ids.fitted(name, 0)
        with self._lock:
            attempt, state = self._known.get((kind, name), _NEVER)
            goes_on = state == "paused"
            attempt += not goes_on
            self._known[kind, name] = (attempt, "working")
        return _span_id(name, attempt), not goes_on

    def leave(self, kind: str, span_id: str, *, paused: bool = False) -> None:
        name, attempt = _parsed(span_id)
        with self._lock:
            # If a node calls a tool twice at a time under one id, only the later call is tracked.
            if self._known.get((kind, name), _NEVER)[0] == attempt:
                self._known[kind, name] = (attempt, "paused" if paused else "over")

    def recall(self, event: Event) -> None:
        """Restores the state from an event of the log. A span without an end is paused."""
        kind, _, word = event.type.partition(".")
        if event.span_id is None or kind not in ("step", "tool", "interrupt"):
            return
        name, attempt = _parsed(event.span_id)
        state = "paused" if word in ("started", "requested") else "over"
        if attempt >= self._known.get((kind, name), _NEVER)[0]:
            self._known[kind, name] = (attempt, state)

    def paused(self, kind: str) -> list[str]:
        """The ids of the spans of this kind that are neither running nor ended."""
        with self._lock:
            known = list(self._known.items())
        return [_span_id(name, n) for (of, name), (n, state) in known if of == kind and state == "paused"]


def name_of(span_id: str) -> str:
    """LangGraph's name for the span."""
    return _parsed(span_id)[0]


def _span_id(name: str, attempt: int) -> str:
    return name if attempt == 1 else f"{name}#{attempt}"


def _parsed(span_id: str) -> tuple[str, int]:
    name, separator, attempt = span_id.rpartition("#")
    return (name, int(attempt)) if separator and attempt.isdecimal() else (span_id, 1)
