"""Small requests with little overhead.

A graph waits for three small requests in each step, so the overhead of a general HTTP library counts: it is a good
part of a millisecond per request. An `http://` address uses the standard library, any other `Transport`.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
from urllib.parse import quote, urlencode, urlsplit

import httpx2

from .._http import Call
from .._settings import CONNECT_TIMEOUT, Verify
from .._sync.transport import Transport

IDLE_CONNECTIONS = 20


class DirectTransport(Transport):
    """A `Transport` for small requests that follow each other. May be shared between threads."""

    def __init__(
        self, url: str | None, *, token: str | None, timeout: float, retries: int, verify: Verify = True
    ) -> None:
        super().__init__(url, token=token, timeout=timeout, retries=retries, verify=verify)
        self._at = urlsplit(self.url)
        standing = [("host", self._at.netloc), *self._headers.multi_items()]
        self._standing = "".join(f"{name}: {value}\r\n" for name, value in standing)
        # The request attached to every response; from it, errors take the credential to redact.
        self._asked = httpx2.Request("GET", self.url, headers=self._headers)
        self._wait = timeout
        self._idle: list[socket.socket] = []
        self._idle_pid = os.getpid()
        self._lock = threading.Lock()

    def attempt(self, call: Call) -> httpx2.Response:
        """One attempt without retries; returns any status. Raises what httpx2 raises."""
        if self._at.scheme != "http":
            return super().attempt(call)
        with self._without_token():
            return self._exchange(self._bytes(call), call.method)

    def _exchange(self, request: bytes, method: str) -> httpx2.Response:
        connection = self._connection()
        try:
            # In one call, so that the server is woken once.
            connection.sendall(request)
            with http.client.HTTPResponse(connection, method=method) as answer:
                answer.begin()
                response = httpx2.Response(
                    answer.status, headers=answer.getheaders(), content=answer.read(), request=self._asked
                )
                stays_open = not answer.will_close
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout(str(error)) from error
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise httpx2.ReadError(str(error) or type(error).__name__) from error
            raise
        if stays_open:
            self._keep(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        super().close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _bytes(self, call: Call) -> bytes:
        """The request's bytes. Nothing in it can end a line: the path is percent-encoded, the token was checked."""
        content, headers = call.body()
        if not isinstance(content, bytes | None):
            raise TypeError("a streamed body is not supported here")
        query = urlencode(call.query(), quote_via=quote)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if call.method != "GET":
            lines += f"content-length: {len(content or b'')}\r\n"
        target = f"{self._at.path}{call.path}{'?' if query else ''}{query}"
        return f"{call.method} {target} HTTP/1.1\r\n{self._standing}{lines}\r\n".encode("latin-1") + (content or b"")

    def _connection(self) -> socket.socket:
        """An idle connection, or a new one."""
        if self._connections.closed:
            raise RuntimeError("the connection to Runreel has been closed")
        with self._lock:
            if self._idle_pid != os.getpid():
                # After a fork the parent uses the same sockets, and two processes would garble one connection.
                self._idle, self._idle_pid = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if not _has_news(connection):
                    return connection
                connection.close()
        place = (self._at.hostname or "", self._at.port or http.client.HTTP_PORT)
        try:
            connection = socket.create_connection(place, min(self._wait, CONNECT_TIMEOUT))
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(self._wait)
        return connection

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and not self._connections.closed:
                self._idle.append(connection)
                return
        connection.close()


def _has_news(idle: socket.socket) -> bool:
    """Whether an idle connection is readable, which means that the server has closed it."""
    poll = select.poll() if hasattr(select, "poll") else None
    if poll is None:
        return bool(select.select([idle], [], [], 0)[0])
    poll.register(idle, select.POLLIN)
    return bool(poll.poll(0))
