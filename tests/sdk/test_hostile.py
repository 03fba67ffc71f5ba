"""Servers that are none, that repeat what they should not, and streams that are broken on purpose."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_errors import TOKEN
from test_stream import END, RUN, control, frame

from conftest import Fake, answer
from runreel import ApiError, AsyncClient, Client, RunreelError
from runreel._follow import SHORTEST_PAUSE, Following
from runreel._sse import LONGEST_FRAME, Parser

PAGE = b"<!doctype html><title>Welcome</title>"


@pytest.mark.parametrize("body", [PAGE, b"", b"[]", b'"ok"', b"[" * 100_000], ids=range(5))
def test_a_server_that_is_none_is_told_and_what_was_emitted_is_counted(
    fake: Fake, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    fake.otherwise = answer(200, body, Content_Type="text/html")
    with Client(fake.url) as client, client.run("lost") as run:
        run.log.info("hello")
    assert client.dropped == 2
    assert "this is not a Runreel server: it answers with text/html" in caplog.text


def test_a_server_that_is_none_takes_no_events_either(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with Client(fake.url) as client, client.run("lost") as run:
        fake.otherwise = answer(200, PAGE)
        run.log.info("one")
        run.log.info("two")
        assert client.flush()
        assert (client.dropped, len(fake.requests)) == (2, 2)
    assert "this is not a Runreel server" in caplog.text


@pytest.mark.parametrize("body", [PAGE, b"", {}, [1], {"runs": 3}])
async def test_reading_from_a_server_that_is_none_is_an_error_of_ours(fake: Fake, body: Any) -> None:
    fake.otherwise = answer(200, body)
    with Client(fake.url) as client, pytest.raises(ApiError, match="not a Runreel server"):
        list(client.list_runs())
    async with AsyncClient(fake.url) as aclient:
        with pytest.raises(ApiError, match="not a Runreel server"):
            _ = [run async for run in aclient.list_runs()]


def reflect(handler: BaseHTTPRequestHandler) -> None:
    told = json.dumps({"code": "x", "title": "x", "detail": str(handler.headers), "hint": str(handler.headers)})
    answer(400, told.encode())(handler)


def reflect_in_a_page(handler: BaseHTTPRequestHandler) -> None:
    answer(400, f"<pre>{'-' * 140}{handler.headers['authorization']}</pre>".encode())(handler)


def reflect_as_a_kind(handler: BaseHTTPRequestHandler) -> None:
    answer(200, PAGE, Content_Type=handler.headers["authorization"])(handler)


def reflect_in_the_status(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(f"HTTP/1.1 what {handler.headers['authorization']}\r\n\r\n".encode())
    handler.close_connection = True


def chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("how", [reflect, reflect_in_a_page, reflect_as_a_kind, reflect_in_the_status])
async def test_a_token_that_is_sent_back_is_said_nowhere(
    fake: Fake, caplog: pytest.LogCaptureFixture, how: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    # What httpx2's own parts say of every byte, for whoever asks them to, is not ours to change.
    caplog.set_level(logging.DEBUG, "runreel")
    fake.otherwise = how
    said = []
    with Client(fake.url, token=TOKEN, retries=0) as client:
        for read in (lambda: client.get_run("x"), lambda: list(client.stream("x"))):
            with pytest.raises(RunreelError) as refused:
                read()
            said += chain(refused.value)
        with client.run("secret") as run:
            run.log.info("hello")
        client.close(timeout=0.5)
    async with AsyncClient(fake.url, token=TOKEN, retries=0) as aclient:
        with pytest.raises(RunreelError) as refused:
            await aclient.get_run("x")
        said += chain(refused.value)
    assert TOKEN[:40] not in "".join(said) + caplog.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody but who has it believes, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "pem")]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    return folder / "pem"


@pytest.fixture
def tls(certificate: Path) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(200, {"run_id": "x"})(self)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key"))
    listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    listener.server_close()
    thread.join()


async def test_an_authority_of_ones_own_is_believed(
    tls: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(tls, retries=0) as client, pytest.raises(RunreelError, match="CERTIFICATE_VERIFY_FAILED"):
        client.get_run("x")
    for verify in (str(certificate), ssl.create_default_context(cafile=str(certificate)), False):
        with Client(tls, retries=0, verify=verify, on_error="raise") as client, client.run("x"):
            assert client.get_run("x") == {"run_id": "x"}
        async with AsyncClient(tls, retries=0, verify=verify, on_error="raise") as aclient, aclient.run("x"):
            assert await aclient.get_run("x") == {"run_id": "x"}
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Client(tls, retries=0) as client:
        assert client.get_run("x") == {"run_id": "x"}
    with pytest.raises(OSError, match="No such file"):
        Client(tls, verify="/nowhere.pem")


async def test_both_clients_come_back_to_a_stream_when_they_are_asked_to(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    pauses: list[float] = []

    # Threads of others go on sleeping.
    mine, sleep, asleep = threading.current_thread(), time.sleep, asyncio.sleep

    async def pause(seconds: float) -> None:
        if threading.current_thread() is mine:
            pauses.append(seconds)
        else:
            await asleep(seconds)

    monkeypatch.setattr(time, "sleep", lambda s: pauses.append(s) if threading.current_thread() is mine else sleep(s))
    with Client(fake.url) as client, monkeypatch.context() as patched:
        fake.refuses(503, "unavailable", Retry_After="60").streams(frame(1) + END)
        assert len(list(client.stream(RUN))) == 1
        async with AsyncClient(fake.url) as aclient:
            patched.setattr(asyncio, "sleep", pause)
            fake.refuses(503, "unavailable", Retry_After="60").streams(frame(1) + END)
            assert len([event async for event in aclient.stream(RUN)]) == 1
    assert pauses == [60.0, 60.0]


def test_no_server_can_ask_for_a_flood() -> None:
    following, parser = Following("/x"), Parser()
    for said in ("retry: 0\n\n" + frame(1), control("stream.draining", retry_ms=0), frame(2)):
        list(following.events(parser, said.encode()))
        following.cut()
        assert following.pause() >= SHORTEST_PAUSE


@pytest.mark.parametrize(
    "broken",
    [
        "data: {\n\n",
        "data: 3\n\n",
        "data: " + "[" * 100_000 + "\n\n",
        'event: log.info\ndata: {"type":"log.info"}\n\n',
        'data: {"run_id":"x","type":"log.info","seq":"1"}\n\n',
        'data: {"run_id":"x","type":"log.info","seq":1,"payload":3}\n\n',
        'data: {"run_id":"x","type":"log.info","seq":' + "1" * 5_000 + "}\n\n",
        "event: message.snapshot\ndata: {}\n\n",
        "event: stream.draining\ndata: []\n\n",
    ],
    ids=range(9),
)
def test_a_broken_stream_is_an_error_of_ours(fake: Fake, broken: str) -> None:
    fake.streams(frame(1) + broken)
    with Client(fake.url) as client, pytest.raises(RunreelError, match="event stream is malformed"):
        list(client.stream(RUN))


def test_a_wait_of_thousands_of_digits_is_survived(fake: Fake) -> None:
    fake.streams(f"retry: {'9' * 5_000}\n\n" + frame(1) + control("stream.draining", retry_ms="soon") + END)
    with Client(fake.url) as client:
        assert len(list(client.stream(RUN))) == 1


@pytest.mark.parametrize("line", [b"x" * 1_048_576, b"data: " + b"x" * 1_048_576 + b"\n"], ids=["line", "lines"])
def test_an_event_without_an_end_is_given_up(line: bytes) -> None:
    parser = Parser()
    with pytest.raises(RunreelError, match="event stream is malformed"):
        for _ in range(2 * LONGEST_FRAME // len(line)):
            assert list(parser.feed(line)) == []
