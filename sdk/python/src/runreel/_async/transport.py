"""Requests that are retried where that is safe, on connections that are kept open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType

import httpx2

from .._connections import AsyncConnections
from .._http import Attempts, Call, Parameter, read_answer
from .._json import JsonValue
from .._settings import Settings, Verify
from .._waiting import async_sleep


class AsyncTransport(Settings):
    """HTTP to one server. Retries are decided in `_http`; the connections are in `_connections`.

    `url` defaults to `RUNREEL_URL`, else http://127.0.0.1:7717; `token` to `RUNREEL_TOKEN`, else none. `timeout`
    (seconds) limits each network wait, `retries` how often a request is retried. `verify` configures TLS verification:
    True for the default authorities (or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`), the path of a file or folder of
    certificates, an `ssl.SSLContext`, or False for none; OSError when the file cannot be read. An `httpx2.AsyncClient`
    of your own is used unchanged and not closed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Verify = True,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, token, timeout, retries, verify)
        self._connections = AsyncConnections(self._options(), client)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Parameter] | None = None,
        content: bytes | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
    ) -> JsonValue:
        """Sends a request and returns the decoded JSON of the answer, None for 204.

        Connection errors and 429, 502, 503, 504 are retried, after `Retry-After` or a growing wait, for GET, PUT and
        DELETE and for calls marked `idempotent`. Raises `ApiError` or `ConnectionFailed`. The caller percent-encodes
        the segments of `path`, see `quote`.
        """
        return await self.send(Call(method, path, params, json, content, content_type, headers or {}, idempotent))

    async def send(self, call: Call) -> JsonValue:
        """`request` for a prepared `Call`."""
        attempts = Attempts(call, self._retries)
        while True:
            try:
                response = await self.attempt(call)
            except httpx2.TransportError as error:
                wait: float | None = attempts.after_error(error)
            else:
                wait = attempts.after_answer(response)
                if wait is None:
                    return read_answer(response)
            await async_sleep(wait or 0.0)

    async def attempt(self, call: Call) -> httpx2.Response:
        """One attempt without retries; returns any status. Raises what httpx2 raises."""
        with self._without_token():
            response = await self._connections.handle(self._request(call))
            try:
                await response.aread()
            finally:
                await response.aclose()
            return response

    @asynccontextmanager
    async def open(self, call: Call, read_timeout: float) -> AsyncIterator[httpx2.Response]:
        """One attempt whose answer is read as it arrives; `read_timeout` seconds of silence are an error."""
        with self._without_token():
            response = await self._connections.handle(self._request(call, read_timeout))
            try:
                yield response
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Closes the connections."""
        await self._connections.close()

    async def __aenter__(self) -> AsyncTransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
