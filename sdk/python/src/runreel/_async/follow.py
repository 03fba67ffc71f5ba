"""Follows a stream across disconnects: the I/O for the rules in `_follow`."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2

from .._events import Event
from .._follow import Following, left, patience
from .._sse import Parser
from .._waiting import async_sleep
from .transport import AsyncTransport


async def async_follow(
    transport: AsyncTransport, following: Following, deadline: float | None = None
) -> AsyncGenerator[Event, None]:
    """The events of a stream. Raises `TimeoutError` within a second of `deadline`, in `time.monotonic()` time."""
    while True:
        patient = patience(deadline)
        try:
            async with transport.open(following.call(), patient) as response:
                if response.status_code != 200:
                    await response.aread()
                if following.answered(response):
                    parser = Parser()
                    async for chunk in response.aiter_raw():
                        for event in following.events(parser, chunk):
                            yield event
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
        await async_sleep(min(following.pause(), left(deadline)))
