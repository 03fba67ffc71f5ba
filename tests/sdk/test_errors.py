"""Refusals, retries, and what is never said."""

from __future__ import annotations

import logging
import pickle
import time
from typing import Any

import httpx
import httpx2
import pytest

import runreel
from conftest import Fake, JwtServer
from runreel import ApiError, AsyncClient, Client, ConnectionFailed
from runreel._async.transport import AsyncTransport
from runreel._http import quote
from runreel._sync.transport import Transport

TOKEN = "rr_" + "5ec2e7" * 10
PROBLEM = {
    "type": "urn:runreel:problem:cursor_ahead",
    "title": "The cursor is ahead of the log",
    "status": 409,
    "detail": "the log ends at 5",
    "code": "cursor_ahead",
    "hint": "begin anew",
    "field": "after",
}


def test_a_refusal_says_all_that_the_server_said(fake: Fake) -> None:
    fake.answers(409, PROBLEM)
    with Transport(fake.url) as transport, pytest.raises(ApiError) as refused:
        transport.request("GET", "/x")
    error = refused.value
    assert (error.status, error.code, error.title) == (409, "cursor_ahead", "The cursor is ahead of the log")
    assert (error.detail, error.hint, error.field) == ("the log ends at 5", "begin anew", "after")
    assert str(error) == "cursor_ahead: the log ends at 5 [after] (begin anew)"


def test_a_refusal_travels_between_processes(fake: Fake) -> None:
    fake.answers(409, PROBLEM)
    with Transport(fake.url) as transport, pytest.raises(ApiError) as refused:
        transport.request("GET", "/x")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.hint) == (str(refused.value), "begin anew")
    assert str(pickle.loads(pickle.dumps(runreel.StreamGap(2, 5)))) == str(runreel.StreamGap(2, 5))


@pytest.mark.parametrize("body", [b"<html>Bad request</html>", b"", b"[1]", b'{"error":"x"}', b"\xff"])
def test_a_refusal_of_somebody_else_is_one_too(fake: Fake, body: bytes) -> None:
    fake.answers(400, body)
    with Transport(fake.url) as transport, pytest.raises(ApiError) as refused:
        transport.request("GET", "/x")
    assert (refused.value.status, refused.value.code) == (400, "http_400")


def test_reads_are_repeated_until_there_is_an_answer(fake: Fake) -> None:
    fake.refuses(503, "unavailable", Retry_After="0").hangs_up().answers(502, b"").answers(504).answers(200, {"a": 1})
    with Transport(fake.url) as transport:
        assert transport.request("GET", "/x") == {"a": 1}
    assert len(fake.requests) == 5


def test_retry_after_is_honoured(fake: Fake) -> None:
    fake.refuses(429, "busy", Retry_After="1").answers(200, {})
    began = time.monotonic()
    with Transport(fake.url) as transport:
        transport.request("PUT", "/x", json={"a": 1})
    assert time.monotonic() - began >= 1
    assert fake.requests[0].body == fake.requests[1].body == b'{"a":1}'


def test_what_is_not_safe_to_repeat_is_not_repeated(fake: Fake) -> None:
    fake.refuses(503, "unavailable", Retry_After="0").hangs_up()
    with Transport(fake.url) as transport:
        with pytest.raises(ApiError, match="unavailable"):
            transport.request("POST", "/x", json={})
        with pytest.raises(ConnectionFailed, match="POST /x"):
            transport.request("POST", "/x", json={})
        assert transport.request("POST", "/x", json={}) == {}
    assert len(fake.requests) == 3


def test_what_is_said_to_be_safe_is_repeated(fake: Fake) -> None:
    fake.hangs_up().refuses(503, "outcome_unknown", Retry_After="0").answers(204)
    with Transport(fake.url) as transport:
        assert transport.request("POST", "/x", json={}, idempotent=True) is None


def test_retries_end(fake: Fake) -> None:
    for _ in range(3):
        fake.refuses(503, "unavailable", Retry_After="0")
    with Transport(fake.url, retries=2) as transport, pytest.raises(ApiError, match="unavailable"):
        transport.request("GET", "/x")
    assert len(fake.requests) == 3


async def test_an_event_loop_repeats_the_same_way(fake: Fake) -> None:
    fake.hangs_up().refuses(503, "unavailable", Retry_After="0").answers(200, {"a": 1}).hangs_up().answers(409, PROBLEM)
    async with AsyncTransport(fake.url) as transport:
        assert await transport.request("GET", "/x") == {"a": 1}
        with pytest.raises(ConnectionFailed):
            await transport.request("POST", "/x", json={})
        with pytest.raises(ApiError, match="cursor_ahead"):
            await transport.request("GET", "/x")


def test_connections_are_kept(fake: Fake) -> None:
    with Transport(fake.url) as transport:
        for _ in range(3):
            transport.request("GET", "/x", params={"a": None, "b": True})
    assert {seen.path for seen in fake.requests} == {"/x?b=true"}
    assert fake.requests[0].headers.get("connection", "keep-alive") == "keep-alive"


def test_a_segment_stays_one_segment(fake: Fake) -> None:
    assert quote("a/b?c#d e%") == "a%2Fb%3Fc%23d%20e%25"
    with Transport(fake.url) as transport:
        for name in ("..", ".", "a/../b", "ö:@+"):
            transport.request("GET", f"/api/threads/{quote(name)}")
    assert [seen.path.removeprefix("/api/threads/") for seen in fake.requests] == [
        "%2E%2E",
        "%2E",
        "a%2F..%2Fb",
        "%C3%B6%3A%40%2B",
    ]


def test_the_token_is_in_the_header_and_nowhere_else(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake.answers(401, {"code": "unauthorized", "detail": "no"}).hangs_up()
    with Client(fake.url, token=TOKEN, retries=0, on_error="warn") as client:
        said = [repr(client), repr(client._transport), repr(vars(client._transport)), repr(client.threads)]
        for _ in range(2):
            with pytest.raises(runreel.RunreelError) as refused:
                client.get_run("x")
            said += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
        with client.run("secret"):
            pass
    assert all(seen.headers["authorization"] == f"Bearer {TOKEN}" for seen in fake.requests)
    assert all(TOKEN not in seen.path and TOKEN.encode() not in seen.body for seen in fake.requests)
    assert TOKEN not in "".join(said) + caplog.text


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ümlaut", "nul\0"])
def test_a_token_that_is_none_is_not_repeated_in_the_error(token: str) -> None:
    with pytest.raises(ValueError, match="the token") as refused:
        Transport(token=token)
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["localhost:7717", "ftp://x", "http://", "http://user:secret@x", "http://x/?token=secret"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address") as refused:
        Transport(url)
    assert "secret" not in str(refused.value)


def test_the_environment_says_where_and_as_whom(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNREEL_URL", fake.url + "/")
    monkeypatch.setenv("RUNREEL_TOKEN", TOKEN)
    # Nobody listens there: a request that asked the proxy would fail.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with Client() as client:
        client.get_run("x")
        assert client.url == fake.url
    assert fake.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_client_of_ones_own_is_used_and_left_open(fake: Fake) -> None:
    with httpx2.Client(headers={"x-mine": "1"}) as http:
        with Client(fake.url, token=TOKEN, http=http) as client:
            client.get_run("x")
        assert not http.is_closed
    assert fake.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert fake.requests[0].headers["x-mine"] == "1"


def test_a_client_of_another_library_is_refused_at_once() -> None:
    other: Any = httpx.Client()
    with other, pytest.raises(TypeError, match="httpx2"):
        Client(http=other)


def test_what_json_has_no_form_for_is_an_error_where_it_is_asked_for(fake: Fake) -> None:
    with Transport(fake.url) as transport:
        for value in ({"a": float("nan")}, {"a": "\ud800"}):
            with pytest.raises(ValueError):  # noqa: PT011
                transport.request("PUT", "/x", json=value)
    assert fake.requests == []


def test_an_expired_credential_is_refused(jwt_server: JwtServer) -> None:
    expired = jwt_server.token("ann", expires_in=-60)
    with Client(jwt_server.url, token=expired) as client, pytest.raises(ApiError) as refused:
        client.get_run("01a20078-18af-7545-b69e-87c0ab9f3405")
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")


THREAD_CALLS: list[tuple[str, list[Any], dict[str, Any], tuple[str, str, Any]]] = [
    ("get", ["t/1"], {}, ("GET", "/api/threads/t%2F1", None)),
    ("put", ["t"], {"ttl_s": None}, ("PUT", "/api/threads/t", {"ttl_s": None})),
    ("put", ["t"], {"metadata": {"a": 1}}, ("PUT", "/api/threads/t", {"metadata": {"a": 1}})),
    ("put", ["t"], {}, ("PUT", "/api/threads/t", {})),
    ("delete", ["t"], {}, ("DELETE", "/api/threads/t", None)),
    ("copy", ["t", "u"], {}, ("POST", "/api/threads/t/copy", {"to": "u"})),
    ("prune", [["t"]], {}, ("POST", "/api/threads/prune", {"thread_ids": ["t"], "strategy": "keep_latest"})),
]


@pytest.mark.parametrize(("name", "given", "named", "request_"), THREAD_CALLS)
async def test_calls_about_threads_are_those_of_the_contract(
    fake: Fake, name: str, given: list[Any], named: dict[str, Any], request_: tuple[str, str, Any]
) -> None:
    with Client(fake.url) as client:
        getattr(client.threads, name)(*given, **named)
    async with AsyncClient(fake.url) as aclient:
        await getattr(aclient.threads, name)(*given, **named)
    sent = [(seen.method, seen.path, seen.json if seen.body else None) for seen in fake.requests]
    assert sent == [request_, request_]
