"""What a callback recorded, as the tests look at it."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from runreel import Event
from runreel.langgraph import RunreelCallback

ASK = {"messages": [("user", "Book me a trip")]}


class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


def config(callback: RunreelCallback, thread_id: str) -> Any:
    return {"callbacks": [callback], "configurable": {"thread_id": thread_id}}


def events(callback: RunreelCallback) -> list[Event]:
    assert callback.run_id is not None
    return list(callback.client.events(callback.run_id))


def bars(callback: RunreelCallback) -> list[str]:
    """The waterfall as text: what lies in what."""
    assert callback.run_id is not None
    spans = callback.client.timeline(callback.run_id)["spans"]
    parents = {span["span_id"]: span.get("parent_span_id") for span in spans}
    names = {span["span_id"]: "message" if span["kind"] == "message" else span["name"] for span in spans}

    def path(span_id: str) -> str:
        parent = parents[span_id]
        return names[span_id] if parent is None else f"{path(parent)} > {names[span_id]}"

    return [path(span["span_id"]) for span in spans]
