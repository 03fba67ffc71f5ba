"""A real server with a database of its own, and a fake one that misbehaves on demand."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from endpoints import Endpoints, config

import runreel
from runreel.langgraph import RunreelCallback, RunreelSaver
from runreel.pydantic_ai import RunreelCapability

BINARY = Path(os.environ.get("RUNREEL_BIN", Path(__file__).parent / "../../target/debug/runreel")).resolve()
JWT_SECRET = "a secret of at least thirty-two bytes"


class Server:
    """`runreel serve` as a process, on a port that stays its own through restarts."""

    def __init__(self, folder: Path, *flags: str, **environment: str) -> None:
        self._folder = folder
        self._flags = flags
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNREEL_")}
        self._environment.pop("DATABASE_URL", None)
        self._environment.update(environment, NO_COLOR="1")
        self._process: subprocess.Popen[str] | None = None
        self._port = "0"
        self.url = ""

    def start(self) -> None:
        words = [str(BINARY), "serve", "--listen", f"127.0.0.1:{self._port}", "--data-dir", str(self._folder)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*words, *self._flags], env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://"), (self._folder / "log").read_text()
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """As a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()

    def client(self, **settings: Any) -> runreel.Client:
        return runreel.Client(self.url, **settings)


def serving(*flags: str, **environment: str) -> Iterator[Server]:
    # Short: the path of the database's socket has a bound of a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="runreel-"))
    server = Server(folder, *flags, **environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that asks nobody who they are."""
    yield from serving()


@dataclass
class JwtServer:
    """A server that wants a credential, and who makes one."""

    url: str

    def token(self, subject: str, *, expires_in: float = 3_600.0) -> str:
        """A JWT as an identity provider would make it."""
        parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": subject, "exp": int(time.time() + expires_in)}]
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
        mac = hmac.new(JWT_SECRET.encode(), signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{_base64url(mac)}"

    def client(self, subject: str, **settings: Any) -> runreel.Client:
        return runreel.Client(self.url, token=self.token(subject), **settings)


@pytest.fixture(scope="session")
def jwt_server() -> Iterator[JwtServer]:
    for started in serving("--auth", "jwt", RUNREEL_JWT_SECRET=JWT_SECRET):
        yield JwtServer(started.url)


@pytest.fixture
def restartable() -> Iterator[Server]:
    """A server of the test's own: `kill()`, `stop()`, `start()` on the same data and the same port."""
    yield from serving()


@pytest.fixture(scope="session")
def endpoints() -> Iterator[Endpoints]:
    with Endpoints() as endpoints:
        yield endpoints


@pytest.fixture(scope="session")
def proxy(endpoints: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose agents are these endpoints."""
    file = tmp_path_factory.mktemp("config") / "runreel.toml"
    file.write_text(config(endpoints.url))
    yield from serving("--config", str(file), "--lease-ms", "1000", "--poll-ms", "50")


@pytest.fixture
def client(server: Server) -> Iterator[runreel.Client]:
    """A client that hides nothing from the test."""
    with server.client(on_error="raise") as client:
        yield client


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Seen:
    """A request that reached the fake server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Fake:
    """A server that gives the answers it was told to, one for each request, and then `otherwise`."""

    url: str = ""
    requests: list[Seen] = field(default_factory=list)
    script: deque[Answer] = field(default_factory=deque)
    otherwise: Answer | None = None

    def answers(self, status: int = 200, body: Any = None, **headers: str) -> Fake:
        self.script.append(answer(status, body, **headers))
        return self

    def refuses(self, status: int, code: str, **headers: str) -> Fake:
        return self.answers(status, {"code": code, "status": status, "title": code, "detail": "as told"}, **headers)

    def streams(self, *chunks: bytes | str, then: str = "ends") -> Fake:
        """A stream that `ends`, is `cut`, or `hangs` after these chunks."""
        self.script.append(stream(chunks, then))
        return self

    def hangs_up(self) -> Fake:
        self.script.append(_hang_up)
        return self

    def wait_for(self, count: int) -> list[Seen]:
        """The requests, once there are so many."""
        deadline = time.monotonic() + 20
        while len(self.requests) < count:
            assert time.monotonic() < deadline, self.requests
            time.sleep(0.005)
        return self.requests


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    def give(handler: BaseHTTPRequestHandler) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return give


def stream(chunks: tuple[bytes | str, ...], then: str) -> Answer:
    def give(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in chunks:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            handler.wfile.flush()
        if then == "ends":
            handler.wfile.write(b"0\r\n\r\n")
        elif then == "hangs":
            # Until the client has had enough.
            handler.rfile.read(1)
        handler.close_connection = True

    return give


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server that misbehaves on demand."""
    fake = Fake(otherwise=answer(200, {}))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.requests.append(Seen(self.command, self.path, headers, body))
            give = fake.script.popleft() if fake.script else fake.otherwise
            assert give is not None
            give(self)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    fake.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield fake
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest_asyncio.fixture
async def aclient(server: Server) -> AsyncIterator[runreel.AsyncClient]:
    async with runreel.AsyncClient(server.url, on_error="raise") as client:
        yield client


@pytest.fixture
def callback(client: runreel.Client) -> Iterator[RunreelCallback]:
    with RunreelCallback(client=client, on_error="raise") as callback:
        yield callback


@pytest.fixture
def capability(client: runreel.Client) -> Iterator[RunreelCapability]:
    with RunreelCapability(client=client, on_error="raise") as capability:
        yield capability


@pytest.fixture
def saver(server: Server) -> Iterator[RunreelSaver]:
    with RunreelSaver(server.url) as saver:
        yield saver
