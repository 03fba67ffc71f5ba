"""One request and its answer, without any I/O: what is sent, what an answer means, and when to retry."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote as percent_encode

import httpx2

from ._json import JsonValue
from .errors import ApiError, ConnectionFailed

Parameter: TypeAlias = str | int | float | bool | None

DEFAULT_URL = "http://127.0.0.1:7717"
RETRIED_STATUS = frozenset({429, 502, 503, 504})
IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
LONGEST_WAIT = 60.0
LONGEST_BACKOFF = 5.0


def quote(segment: str) -> str:
    """One segment of a path, percent-encoded, including slashes and segments of dots, so that it stays one segment."""
    # URL libraries resolve "." and "..", which are valid thread ids.
    return percent_encode(segment, safe="") if segment.strip(".") else segment.replace(".", "%2E")


def encode(value: object) -> bytes:
    """JSON in UTF-8 without white space. Raises ValueError for NaN and lone surrogates."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Call:
    """A request as data. `path` is already percent-encoded; parameters that are None are left out."""

    method: str
    path: str
    params: Mapping[str, Parameter] | None = None
    json: object = None
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool | None = None

    @property
    def repeatable(self) -> bool:
        return self.method in IDEMPOTENT_METHODS if self.idempotent is None else self.idempotent

    def body(self) -> tuple[bytes | Iterable[bytes] | AsyncIterable[bytes] | None, dict[str, str]]:
        """The bytes of the body and the headers of the request."""
        headers = dict(self.headers)
        content = self.content
        if content is None and self.json is not None:
            content = encode(self.json)
        if content is not None:
            headers["content-type"] = self.content_type or "application/json"
        return content, headers

    def query(self) -> dict[str, str | int | float | bool]:
        return {name: value for name, value in (self.params or {}).items() if value is not None}


def address(url: str | None) -> str:
    """The server's address without a slash at the end; the default is `RUNREEL_URL`, else this machine's."""
    text = url or os.environ.get("RUNREEL_URL") or DEFAULT_URL
    parsed = httpx2.URL(text)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"not an http or https address: {parsed!r}")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ValueError("the address has more than scheme, host, port and path; pass a credential as token=")
    return text.rstrip("/")


def standing_headers(token: str | None) -> httpx2.Headers:
    """The headers of all requests. httpx2 hides the credential when they are printed."""
    headers = {"accept-encoding": "identity", "user-agent": "runreel-python/0.1.0"}
    token = token or os.environ.get("RUNREEL_TOKEN")
    if token:
        # The HTTP library would quote a malformed value in its error message.
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ValueError("the token contains characters that are not allowed in a credential")
        headers["authorization"] = f"Bearer {token}"
    return httpx2.Headers(headers)


def read_answer(response: httpx2.Response) -> JsonValue:
    """The decoded JSON of a successful answer (None for 204); otherwise raises `ApiError`."""
    error = wrong(response)
    if error is not None:
        raise error
    return None if response.status_code == 204 else _decoded(response)


def rows(answer: object, member: str) -> list[Any]:
    """The rows of a page; raises `ApiError` for an answer that is not one."""
    found = answer.get(member) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ApiError(200, "http_200", detail=f"this is not a Runreel server: its answer has no {member}")
    return found


def wrong(response: httpx2.Response) -> ApiError | None:
    """The error of an answer, None for a successful one. Its body must have been read."""
    good = response.is_success and (response.status_code == 204 or isinstance(_decoded(response), dict))
    return None if good else refusal(response)


def refusal(response: httpx2.Response) -> ApiError:
    """The error of an unsuccessful answer. Its body must have been read."""
    status, problem = response.status_code, _decoded(response)
    if response.is_success:
        kind = response.headers.get("content-type") or "something else"
        detail = f"this is not a Runreel server: it answers with {kind} where Runreel sends a JSON object"
        return ApiError(status, f"http_{status}", detail=_without_token(response, detail))
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        title, detail = (_without_token(response, text) for text in (response.reason_phrase, response.text))
        return ApiError(status, f"http_{status}", title=title, detail=detail[:200])
    texts = {name: _without_token(response, str(problem[name])) for name in _TEXTS if problem.get(name) is not None}
    return ApiError(
        status,
        texts["code"],
        title=texts.get("title", ""),
        detail=texts.get("detail", ""),
        hint=texts.get("hint"),
        field=texts.get("field"),
    )


_TEXTS = ("code", "title", "detail", "hint", "field")


def _decoded(response: httpx2.Response) -> Any:
    """The JSON of an answer; None when it is not JSON."""
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _without_token(response: httpx2.Response, text: str) -> str:
    # Some servers and proxies echo the headers of a request they refuse.
    return redacted(text, response.request.headers)


def redacted(text: str, headers: httpx2.Headers) -> str:
    """A text without the credential in these headers."""
    token = headers.get("authorization", "").removeprefix("Bearer ")
    return text.replace(token, "[token]") if token else text


def retry_after(response: httpx2.Response) -> float | None:
    """The seconds of `Retry-After`, bounded; None when it is missing or a date."""
    text = response.headers.get("retry-after", "")
    return min(float(text), LONGEST_WAIT) if text.isdecimal() else None


def backoff(failures: int, base: float = 0.1) -> float:
    """Seconds to wait after this many failures in a row, 1 or more: doubling, bounded, with jitter."""
    return min(LONGEST_BACKOFF, base * 2.0 ** min(failures - 1, 16)) * random.uniform(0.5, 1.0)


class Attempts:
    """Decides after a failed attempt whether to retry, and when."""

    def __init__(self, call: Call, retries: int) -> None:
        self._call = call
        self._left = retries
        self._failures = 0

    def after_error(self, error: httpx2.TransportError) -> float:
        """Seconds until the next attempt, or raises `ConnectionFailed`."""
        # A request that was never sent may be repeated even if it is not idempotent.
        unsent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
        if self._left and (unsent or self._call.repeatable):
            return self._next(None)
        raise unanswered(self._call, error) from error

    def after_answer(self, response: httpx2.Response) -> float | None:
        """Seconds until the next attempt, or None when this answer is final."""
        if response.status_code not in RETRIED_STATUS or not self._left or not self._call.repeatable:
            return None
        return self._next(retry_after(response))

    def _next(self, asked: float | None) -> float:
        self._left -= 1
        self._failures += 1
        return backoff(self._failures) if asked is None else asked * random.uniform(1.0, 1.1)


def unanswered(call: Call, error: httpx2.TransportError) -> ConnectionFailed:
    return ConnectionFailed(f"{call.method} {call.path}: {str(error) or type(error).__name__}")
