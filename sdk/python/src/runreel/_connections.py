"""Connections to one server that are kept open: `Connections` for threads, `AsyncConnections` for event loops."""

from __future__ import annotations

import asyncio
import os

import httpx2

from ._settings import Options


class Connections:
    """Can be shared between threads, and used on both sides of a fork.

    If a `client` is given, it is used instead, and not closed; TypeError if it is not an `httpx2.Client`.
    """

    def __init__(self, options: Options, client: httpx2.Client | None) -> None:
        if not isinstance(client, httpx2.Client | None):
            raise TypeError(f"the client must be an httpx2.Client, not one of {type(client).__module__}")
        self.closed = False
        self._options = options
        self._given = client
        self._http = httpx2.HTTPTransport(**options)
        self._pid = os.getpid()

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, with its body still unread. Raises what httpx2 raises, RuntimeError after `close`."""
        if self.closed:
            raise RuntimeError("the connection to Runreel has been closed")
        if self._given is not None:
            return self._given.send(_with_defaults(request, self._given.headers), stream=True)
        if self._pid != os.getpid():
            # After a fork the parent uses the same sockets, and two processes would garble one connection.
            self._http, self._pid = httpx2.HTTPTransport(**self._options), os.getpid()
        response = self._http.handle_request(request)
        response.request = request
        return response

    def close(self) -> None:
        """Closes the connections; later requests raise RuntimeError."""
        self.closed = True
        if self._pid == os.getpid():
            self._http.close()


class AsyncConnections:
    """Can be used by several event loops, one after another.

    If a `client` is given, it is used instead, and not closed; TypeError if it is not an `httpx2.AsyncClient`.
    """

    def __init__(self, options: Options, client: httpx2.AsyncClient | None) -> None:
        if not isinstance(client, httpx2.AsyncClient | None):
            raise TypeError(f"the client must be an httpx2.AsyncClient, not one of {type(client).__module__}")
        self._options = options
        self._given = client
        self._http: httpx2.AsyncHTTPTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, with its body still unread. Raises what httpx2 raises."""
        if self._given is not None:
            return await self._given.send(_with_defaults(request, self._given.headers), stream=True)
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            # A connection is bound to its event loop, and a forked process has another loop.
            self._http, self._loop = httpx2.AsyncHTTPTransport(**self._options), loop
        response = await self._http.handle_async_request(request)
        response.request = request
        return response

    async def close(self) -> None:
        """Closes the connections; a later request opens new ones."""
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()


def _with_defaults(request: httpx2.Request, headers: httpx2.Headers) -> httpx2.Request:
    for name, value in headers.items():
        request.headers.setdefault(name, value)
    return request
