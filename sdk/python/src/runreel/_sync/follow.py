# Generated from src/runreel/_async/follow.py by `./just unasync`: change that file instead of this one.
"""Follows a stream across disconnects: the I/O for the rules in `_follow`."""

from __future__ import annotations

from collections.abc import Generator

import httpx2

from .._events import Event
from .._follow import Following, left, patience
from .._sse import Parser
from .._waiting import sleep
from .transport import Transport


def follow(transport: Transport, following: Following, deadline: float | None = None) -> Generator[Event, None, None]:
    """The events of a stream. Raises `TimeoutError` within a second of `deadline`, in `time.monotonic()` time."""
    while True:
        patient = patience(deadline)
        try:
            with transport.open(following.call(), patient) as response:
                if response.status_code != 200:
                    response.read()
                if following.answered(response):
                    parser = Parser()
                    for chunk in response.iter_raw():
                        yield from following.events(parser, chunk)
                        if following.done:
                            return
                        if patience(deadline) < patient - 1.0:
                            # The read timeout of an open connection cannot be shortened: reconnect with a shorter one.
                            break
                    else:
                        following.cut()
        except httpx2.TransportError as error:
            following.cut(error)
        if following.done:
            return
        sleep(min(following.pause(), left(deadline)))
