"""How the tests read what was stored, and how they let something happen meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from runreel import Client, Event


def stored(client: Client, run_id: str) -> list[Event]:
    return list(client.events(run_id))


def types(client: Client, run_id: str) -> list[str]:
    return [event.type for event in stored(client, run_id)]


def one(client: Client, run_id: str, type: str) -> Event:
    (event,) = client.events(run_id, types=type)
    return event


def later(seconds: float, call: Any, *args: Any) -> threading.Timer:
    timer = threading.Timer(seconds, call, args)
    timer.start()
    return timer


def until(events: Iterator[Event], type: str) -> Iterator[Event]:
    for event in events:
        yield event
        if event.type == type:
            return


def said(error: Any) -> str:
    """The line that readers show of an error."""
    return ": ".join(filter(None, (error.get("type"), error.get("message"))))
