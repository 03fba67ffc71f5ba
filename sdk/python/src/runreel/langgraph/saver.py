"""LangGraph's checkpoints in Runreel: each thread's state, stored by the server and readable from any process."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from .._async.transport import AsyncTransport
from .._http import Call
from .._settings import Verify
from ._async.checkpoints import AsyncCheckpoints
from ._sync.checkpoints import Checkpoints
from .direct import DirectTransport


class RunreelSaver(Checkpoints, AsyncCheckpoints):
    """A checkpointer for `graph.compile(checkpointer=…)`; for `invoke` and for `ainvoke`.

    One saver can be shared by threads and by event loops. It keeps connections open: close it (`close`, `aclose`) or
    use it as a context manager, `with` or `async with`. Values are serialised by `serde`, by default LangGraph's own;
    with an `EncryptedSerializer` the server sees neither values nor state. It does see ids, the names of the channels
    and the metadata, which is JSON: NUL characters are removed, lone surrogates become `U+FFFD`, NaN becomes null, and
    a value without a JSON form its `repr`. Of metadata over 64 KiB the longest members are left out, and it gets the
    member `"$truncated": true`. A member of the metadata that is a JWT (a compact JWS, also after `Bearer`) is removed:
    LangGraph copies `configurable` there, and a service may pass its user's token in it. The state itself is stored
    unchanged; the server rejects one that contains a JWT of the server's own. A checkpoint belongs to the run named as
    `run_id` in its metadata, else to the one that a `RunreelCallback` in the config records. `url`, `token`,
    `timeout`, `retries` and `verify` are those of `Client`.

    Methods raise `ApiError` when the server refuses, `ConnectionFailed` when it does not answer after `retries`, and
    ValueError for a thread id that is not 1 to 255 characters of `A-Z a-z 0-9 . _ : @ + -`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        serde: SerializerProtocol | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Verify = True,
    ) -> None:
        super().__init__(serde=serde)
        options: dict[str, Any] = {"token": token, "timeout": timeout, "retries": retries, "verify": verify}
        self._transport = DirectTransport(url, **options)
        # Not a partial: its repr would contain the token.
        self._new_async_transport: Callable[[], AsyncTransport] = lambda: AsyncTransport(url, **options)
        self._async_transports: dict[asyncio.AbstractEventLoop, AsyncTransport] = {}
        self._lock = threading.Lock()

    def setup(self) -> None:
        """Does nothing: the server manages its tables. Other savers need this call."""

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """A counter and, so that two branches of a thread never share a version, 48 random bits: `00000003.9f…`.

        Sorts after every version of LangGraph's own savers, whose counters have more leading zeros. The random bits are
        the operating system's, because programs that seed `random` would get the same ones.
        """
        counted = int(current.partition(".")[0]) if isinstance(current, str) else int(current or 0)
        return f"{counted + 1:08}.{secrets.token_hex(6)}"

    def close(self) -> None:
        """Closes the connections of the sync methods, which cannot be used afterwards."""
        self._transport.close()

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, and those of the sync methods."""
        self.close()
        if transport := self._async_transports.pop(asyncio.get_running_loop(), None):
            await transport.close()

    def __enter__(self) -> RunreelSaver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> RunreelSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def _send(self, call: Call) -> object:
        return self._transport.send(call)

    async def _async_send(self, call: Call) -> object:
        return await self._async_transport().send(call)

    def _async_transport(self) -> AsyncTransport:
        """The transport of the running loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        transport = self._async_transports.get(loop)
        if transport is None:
            with self._lock:
                for closed in [other for other in self._async_transports if other.is_closed()]:
                    del self._async_transports[closed]
                transport = self._async_transports[loop] = self._new_async_transport()
        return transport
