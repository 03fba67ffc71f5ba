"""A question to a person, and its answer from the log: both survive restarts of either side."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, closing

from . import _routes
from ._events import Decision, Event
from ._follow import Following, follow, follow_async
from ._outbox import Target
from ._sender import Sender, landed, landed_async
from ._transport import AsyncTransport, Transport
from .errors import RunEnded


class _Question:
    """What to look for, and what it means."""

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


class Approval(_Question):
    """An open question. `interrupt_id` identifies it for `client.resume`."""

    def __init__(
        self, interrupt_id: str, target: Target, sender: Sender, open_ids: set[str], transport: Transport
    ) -> None:
        super().__init__(interrupt_id, target, sender, open_ids)
        self._transport = transport

    def wait(self, timeout: float | None = None) -> Decision:
        """Waits for the answer, also across restarts of the server.

        Raises `TimeoutError` after `timeout` seconds; the question stays open and can be waited for again. Raises
        `RunEnded` when the run ended without an answer.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not landed(self._sender.flush(patient=True), timeout):
            raise TimeoutError("the question did not reach the server in time")
        with closing(follow(self._transport, self._following(), deadline)) as events:
            for event in events:
                decision = self._decision(event)
                if decision is not None:
                    return decision
        raise self._unanswered()


class AsyncApproval(_Question):
    """The same for event loops."""

    def __init__(
        self, interrupt_id: str, target: Target, sender: Sender, open_ids: set[str], transport: AsyncTransport
    ) -> None:
        super().__init__(interrupt_id, target, sender, open_ids)
        self._transport = transport

    async def wait(self, timeout: float | None = None) -> Decision:
        """As `Approval.wait`."""
        try:
            return await asyncio.wait_for(self._wait(), timeout)
        except asyncio.TimeoutError:
            # Another class than the built-in one until Python 3.11.
            raise TimeoutError("no answer in time") from None

    async def _wait(self) -> Decision:
        await landed_async(self._sender.flush(patient=True), None)
        async with aclosing(follow_async(self._transport, self._following())) as events:
            async for event in events:
                decision = self._decision(event)
                if decision is not None:
                    return decision
        raise self._unanswered()
