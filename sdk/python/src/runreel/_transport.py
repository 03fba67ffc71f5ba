"""Requests that are retried when that is safe, on connections that are kept open.

`Transport` is for threads, `AsyncTransport` for event loops; what they decide is in `_http`. The token travels in the
`Authorization` header and appears nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any

import httpx

from ._http import Attempts, Call, address, quote, read_answer, redacted, standing_headers

__all__ = ["AsyncTransport", "Transport", "quote"]

CONNECT_TIMEOUT = 5.0
# httpx's transports without its client around them: no cookies, redirects, proxies or hooks are wanted here, and a
# request costs a third less.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=15.0)

Verify = bool | str | ssl.SSLContext


class _Settings:
    """What both kinds share: address, credential and retries."""

    def __init__(self, url: str | None, token: str | None, timeout: float, retries: int, verify: Verify) -> None:
        self.url = address(url)
        self._headers = standing_headers(token)
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))
        self._retries = retries
        # Loading certificates takes time, and they are of use to an https address only.
        self._verify = _trusted(verify) if self.url.startswith("https:") else False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _options(self) -> dict[str, Any]:
        # Of the environment httpx's transports take SSL_CERT_FILE and SSL_CERT_DIR. A proxy that is named there has no
        # business between a program and its own machine; it is httpx's client that would ask it.
        return {"verify": self._verify, "trust_env": True, "limits": LIMITS}

    @contextmanager
    def _without_token(self) -> Iterator[None]:
        """Takes the token out of errors: some quote what came, and a server may send back what it was sent."""
        try:
            yield
        except httpx.TransportError as error:
            at: BaseException | None = error
            while at is not None:
                at.args = tuple(arg if isinstance(arg, int) else redacted(str(arg), self._headers) for arg in at.args)
                at = at.__cause__ or at.__context__
            raise

    def _request(self, call: Call, read_timeout: float | None = None) -> httpx.Request:
        content, headers = call.body()
        timeout = self._timeout.as_dict()
        if read_timeout is not None:
            timeout["read"] = read_timeout
        return httpx.Request(
            call.method,
            self.url + call.path,
            params=call.query() or None,
            headers=[*self._headers.multi_items(), *headers.items()],
            content=content,
            extensions={"timeout": timeout},
        )


class Transport(_Settings):
    """HTTP to one server. May be shared between threads, and used on both sides of a fork.

    `url` defaults to `RUNREEL_URL`, else http://127.0.0.1:7717; `token` to `RUNREEL_TOKEN`, else none. `timeout`
    (seconds) limits each network wait, `retries` how often a request is retried. `verify` configures TLS verification:
    True for the default authorities (or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`), the path of a file or folder of
    certificates, an `ssl.SSLContext`, or False for none; OSError when the file cannot be read. An `httpx.Client` of
    your own is used unchanged and not closed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Verify = True,
        client: httpx.Client | None = None,
    ) -> None:
        super().__init__(url, token, timeout, retries, verify)
        self._given = client
        self._http = httpx.HTTPTransport(**self._options())
        self._pid = os.getpid()
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """Sends a request and gives the decoded JSON of the answer, None for 204.

        Connection errors and 429, 502, 503, 504 are retried, after `Retry-After` or a growing wait, for GET, PUT and
        DELETE and for calls marked `idempotent`. Raises `ApiError` or `ConnectionFailed`. Segments of `path` are
        quoted by the caller, see `quote`.
        """
        return self.send(Call(method, path, params, json, content, content_type, headers or {}, idempotent))

    def send(self, call: Call) -> Any:
        """The same for a request that is data already."""
        attempts = Attempts(call, self._retries)
        while True:
            try:
                response = self.attempt(call)
            except httpx.TransportError as error:
                wait: float | None = attempts.after_error(error)
            else:
                wait = attempts.after_answer(response)
                if wait is None:
                    return read_answer(response)
            time.sleep(wait or 0.0)

    def attempt(self, call: Call) -> httpx.Response:
        """One attempt, whatever comes of it. Raises what httpx raises."""
        with self._without_token():
            response = self._handle(self._request(call))
            try:
                response.read()
            finally:
                response.close()
            return response

    @contextmanager
    def open(self, call: Call, read_timeout: float) -> Iterator[httpx.Response]:
        """One attempt whose answer is read as it arrives; `read_timeout` seconds of silence are an error."""
        with self._without_token():
            response = self._handle(self._request(call, read_timeout))
            try:
                yield response
            finally:
                response.close()

    def close(self) -> None:
        """Closes the connections; the transport is of no use afterwards."""
        self._closed = True
        if self._pid == os.getpid():
            self._http.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if self._closed:
            raise RuntimeError("the connection to Runreel has been closed")
        if self._given is not None:
            return self._given.send(_with_defaults(request, self._given.headers), stream=True)
        if self._pid != os.getpid():
            # After a fork the sockets are still the parent's: two processes on one connection garble both.
            self._http, self._pid = httpx.HTTPTransport(**self._options()), os.getpid()
        response = self._http.handle_request(request)
        response.request = request
        return response


class AsyncTransport(_Settings):
    """The same for event loops; the arguments are those of `Transport`, with an `httpx.AsyncClient`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Verify = True,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, token, timeout, retries, verify)
        self._given = client
        self._http: httpx.AsyncHTTPTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """As `Transport.request`."""
        return await self.send(Call(method, path, params, json, content, content_type, headers or {}, idempotent))

    async def send(self, call: Call) -> Any:
        """The same for a request that is data already."""
        attempts = Attempts(call, self._retries)
        while True:
            try:
                response = await self.attempt(call)
            except httpx.TransportError as error:
                wait: float | None = attempts.after_error(error)
            else:
                wait = attempts.after_answer(response)
                if wait is None:
                    return read_answer(response)
            await asyncio.sleep(wait or 0.0)

    async def attempt(self, call: Call) -> httpx.Response:
        """One attempt, whatever comes of it. Raises what httpx raises."""
        with self._without_token():
            response = await self._handle(self._request(call))
            try:
                await response.aread()
            finally:
                await response.aclose()
            return response

    @asynccontextmanager
    async def open(self, call: Call, read_timeout: float) -> AsyncIterator[httpx.Response]:
        """One attempt whose answer is read as it arrives; `read_timeout` seconds of silence are an error."""
        with self._without_token():
            response = await self._handle(self._request(call, read_timeout))
            try:
                yield response
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Closes the connections; the next request would open new ones."""
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def __aenter__(self) -> AsyncTransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        if self._given is not None:
            return await self._given.send(_with_defaults(request, self._given.headers), stream=True)
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            # Connections belong to the loop they were opened on; after a fork there is another loop, too.
            self._http, self._loop = httpx.AsyncHTTPTransport(**self._options()), loop
        response = await self._http.handle_async_request(request)
        response.request = request
        return response


def _trusted(verify: Verify) -> bool | ssl.SSLContext:
    if not isinstance(verify, str):
        return verify
    folder = os.path.isdir(verify)
    return ssl.create_default_context(cafile=None if folder else verify, capath=verify if folder else None)


def _with_defaults(request: httpx.Request, headers: httpx.Headers) -> httpx.Request:
    for name, value in headers.items():
        request.headers.setdefault(name, value)
    return request
