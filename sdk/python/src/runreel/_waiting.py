"""Waiting, which differs between threads and event loops: each function exists twice, for event loops as `async_…`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ._sender import Sender

Found = TypeVar("Found")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def landed(done: Future[bool], timeout: float | None) -> bool:
    """Waits for a flush; False when it failed or timed out."""
    try:
        return done.result(timeout)
    except futures.TimeoutError:
        return False


async def async_landed(done: Future[bool], timeout: float | None) -> bool:
    wrapped = asyncio.wrap_future(done)
    try:
        await asyncio.wait([wrapped], timeout=timeout)
        return wrapped.done() and wrapped.result()
    finally:
        # Otherwise the sender's thread could call into a loop that has ended.
        wrapped.cancel()


def in_time(timeout: float | None, find: Callable[[float | None], Found]) -> Found:
    """The result of `find`, or TimeoutError after `timeout` seconds. `find` gets the deadline and enforces it."""
    return find(None if timeout is None else time.monotonic() + timeout)


async def async_in_time(timeout: float | None, find: Callable[[float | None], Awaitable[Found]]) -> Found:
    """`in_time` for event loops: the loop enforces the deadline, and `find` gets None."""
    try:
        return await asyncio.wait_for(find(None), timeout)
    except asyncio.TimeoutError:
        # Before Python 3.11 this is not the built-in class.
        raise TimeoutError("no answer in time") from None


def end(sender: Sender, timeout: float) -> None:
    """Lets a sender send what is queued, for at most `timeout` seconds, and ends its thread."""
    sender.close(timeout)


async def async_end(sender: Sender, timeout: float) -> None:
    await async_landed(sender.flush(patient=True), timeout)
    # What has not landed by now is dropped.
    await asyncio.to_thread(sender.close, 0.0)
