# Generated from src/runreel/_async/transport.py by `./just unasync`: change that file instead of this one.
"""Requests that are retried where that is safe, on connections that are kept open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import httpx2

from .._connections import Connections
from .._http import Attempts, Call, Parameter, read_answer
from .._json import JsonValue
from .._settings import Settings, Verify
from .._waiting import sleep


class Transport(Settings):
    """HTTP to one server. Retries are decided in `_http`; the connections are in `_connections`.

    `url` defaults to `RUNREEL_URL`, else http://127.0.0.1:7717; `token` to `RUNREEL_TOKEN`, else none. `timeout`
    (seconds) limits each network wait, `retries` how often a request is retried. `verify` configures TLS verification:
    True for the default authorities (or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`), the path of a file or folder of
    certificates, an `ssl.SSLContext`, or False for none; OSError when the file cannot be read. An `httpx2.Client`
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
        client: httpx2.Client | None = None,
    ) -> None:
        super().__init__(url, token, timeout, retries, verify)
        self._connections = Connections(self._options(), client)

    def request(
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
        return self.send(Call(method, path, params, json, content, content_type, headers or {}, idempotent))

    def send(self, call: Call) -> JsonValue:
        """`request` for a prepared `Call`."""
        attempts = Attempts(call, self._retries)
        while True:
            try:
                response = self.attempt(call)
            except httpx2.TransportError as error:
                wait: float | None = attempts.after_error(error)
            else:
                wait = attempts.after_answer(response)
                if wait is None:
                    return read_answer(response)
            sleep(wait or 0.0)

    def attempt(self, call: Call) -> httpx2.Response:
        """One attempt without retries; returns any status. Raises what httpx2 raises."""
        with self._without_token():
            response = self._connections.handle(self._request(call))
            try:
                response.read()
            finally:
                response.close()
            return response

    @contextmanager
    def open(self, call: Call, read_timeout: float) -> Iterator[httpx2.Response]:
        """One attempt whose answer is read as it arrives; `read_timeout` seconds of silence are an error."""
        with self._without_token():
            response = self._connections.handle(self._request(call, read_timeout))
            try:
                yield response
            finally:
                response.close()

    def close(self) -> None:
        """Closes the connections."""
        self._connections.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
