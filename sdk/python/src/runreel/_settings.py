"""What all requests share: address, credential, timeouts and TLS verification.

The token is sent in the `Authorization` header and appears nowhere else.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import httpx2

from ._http import Call, address, redacted, standing_headers

CONNECT_TIMEOUT = 5.0
# httpx2's transports are used without its client: no cookies, redirects, proxies or hooks are wanted here, and a
# request costs a third less. The server closes a connection after 10 s without use, and a request sent at that moment
# would fail, so idle connections expire well before.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)

Verify = bool | str | ssl.SSLContext


class Options(TypedDict):
    """The arguments of an httpx2 transport."""

    verify: bool | ssl.SSLContext
    trust_env: bool
    limits: httpx2.Limits


class Settings:
    """What both kinds of transport share: address, credential and retries."""

    def __init__(self, url: str | None, token: str | None, timeout: float, retries: int, verify: Verify) -> None:
        self.url = address(url)
        self._headers = standing_headers(token)
        self._timeout = httpx2.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))
        self._retries = retries
        # Loading certificates takes time, and only an https address needs them.
        self._verify = _trusted(verify) if self.url.startswith("https:") else False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _options(self) -> Options:
        # From the environment, httpx2's transports take SSL_CERT_FILE and SSL_CERT_DIR. Proxies are ignored, since only
        # httpx2's client would use them: none must come between a program and its own machine.
        return {"verify": self._verify, "trust_env": True, "limits": LIMITS}

    @contextmanager
    def _without_token(self) -> Iterator[None]:
        """Removes the token from errors: some quote the answer, and a server may echo the request."""
        try:
            yield
        except httpx2.TransportError as error:
            at: BaseException | None = error
            while at is not None:
                at.args = tuple(arg if isinstance(arg, int) else redacted(str(arg), self._headers) for arg in at.args)
                at = at.__cause__ or at.__context__
            raise

    def _request(self, call: Call, read_timeout: float | None = None) -> httpx2.Request:
        content, headers = call.body()
        timeout = self._timeout.as_dict()
        if read_timeout is not None:
            timeout["read"] = read_timeout
        return httpx2.Request(
            call.method,
            self.url + call.path,
            params=call.query() or None,
            headers=[*self._headers.multi_items(), *headers.items()],
            content=content,
            extensions={"timeout": timeout},
        )


def _trusted(verify: Verify) -> bool | ssl.SSLContext:
    if not isinstance(verify, str):
        return verify
    folder = os.path.isdir(verify)
    return ssl.create_default_context(cafile=None if folder else verify, capath=verify if folder else None)
