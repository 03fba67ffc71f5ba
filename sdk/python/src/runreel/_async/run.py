"""A run from its creation to its end, as a context manager."""

from __future__ import annotations

from types import TracebackType
from typing import cast

import httpx2

from .. import _routes
from .._outbox import Target
from .._run import ENTER_TIMEOUT, LEAVE_TIMEOUT, RunScope
from .._sender import Sender
from .._uploads import AsyncStored, Stored, Upload
from .._waiting import async_landed
from ..errors import ConnectionFailed, RunreelError
from .approval import AsyncApproval
from .transport import AsyncTransport


class AsyncRun(RunScope[AsyncStored]):
    """A run to report on, made by `AsyncClient.run` or `AsyncClient.attach`; use it with `async with`.

    Without a block it starts with its first event, and ends with `complete`, `fail` or `cancel`. `run.output = …` sets
    its output. A block that raises ends it as failed, Ctrl-C as cancelled, and the exception propagates. Emitting never
    waits, but an upload does: `await run.artifact(…)`.
    """

    def __init__(self, sender: Sender, transport: AsyncTransport, target: Target) -> None:
        super().__init__(sender, target)
        self._transport = transport

    async def _keep(self, upload: Upload) -> Stored:
        self._begin()
        try:
            # Earlier events are stored before the artifact; an unreachable server is not waited for.
            if not await async_landed(self._sender.flush(patient=False), LEAVE_TIMEOUT):
                raise ConnectionFailed(f"{self._transport.url} cannot be reached")
            answer = await self._transport.send(_routes.upload(self.run_id, upload, upload.async_body()))
            return cast(Stored, answer)
        except (RunreelError, httpx2.HTTPError, OSError, ValueError) as error:
            self._sender.upload_failed(upload.name, error)
            return None

    async def __aenter__(self) -> AsyncRun:
        self._begin()
        try:
            if not await async_landed(self._sender.flush(patient=False), ENTER_TIMEOUT):
                self._sender.raise_unsent()
            self._sender.raise_pending()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            self._leave(error)
            if not await async_landed(self._sender.flush(patient=False), LEAVE_TIMEOUT):
                self._sender.raise_unsent()
            self._sender.raise_pending()
        except Exception:
            # The program's own exception takes precedence.
            if error is None:
                raise

    def approval(
        self,
        prompt: str,
        *,
        details: object = None,
        expires_in: float | None = None,
        kind: str = "approval",
        interrupt_id: str | None = None,
    ) -> AsyncApproval:
        """Asks a person: emits `interrupt.requested` and `run.interrupted`. `await approval.wait()` gives the answer.

        `details` is anything that helps to decide. After `expires_in` seconds the answer is `expired`. With an
        `interrupt_id` of your own (1 to 128 characters), a later process that attaches to the run finds the same
        question, and its answer if there is one.
        """
        interrupt = self._request_approval(prompt, details, expires_in, kind, interrupt_id)
        return AsyncApproval(interrupt, self._target, self._sender, self._open_approvals, self._transport)
