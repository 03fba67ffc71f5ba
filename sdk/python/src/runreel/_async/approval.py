"""A question to a person, and its answer from the log: both survive restarts of either side."""

from __future__ import annotations

from contextlib import aclosing

from .._approval import Question
from .._events import Decision
from .._follow import left
from .._outbox import Target
from .._sender import Sender
from .._waiting import async_in_time, async_landed
from .follow import async_follow
from .transport import AsyncTransport


class AsyncApproval(Question):
    """An open question. `interrupt_id` identifies it for `client.resume`."""

    def __init__(
        self, interrupt_id: str, target: Target, sender: Sender, open_ids: set[str], transport: AsyncTransport
    ) -> None:
        super().__init__(interrupt_id, target, sender, open_ids)
        self._transport = transport

    async def wait(self, timeout: float | None = None) -> Decision:
        """Waits for the answer, also across restarts of the server.

        Raises `TimeoutError` after `timeout` seconds; the question stays open and can be waited for again. Raises
        `RunEnded` when the run ended without an answer.
        """
        return await async_in_time(timeout, self._answer)

    async def _answer(self, deadline: float | None) -> Decision:
        if not await async_landed(self._sender.flush(patient=True), None if deadline is None else left(deadline)):
            raise TimeoutError("the question did not reach the server in time")
        async with aclosing(async_follow(self._transport, self._following(), deadline)) as events:
            async for event in events:
                decision = self._decision(event)
                if decision is not None:
                    return decision
        raise self._unanswered()
