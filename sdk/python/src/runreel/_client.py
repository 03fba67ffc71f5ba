"""The clients, for threads and for event loops, with the same method names."""

from __future__ import annotations

import httpx2

from ._async.client import AsyncBaseClient
from ._async.transport import AsyncTransport
from ._sender import OnError, Sender
from ._settings import Verify
from ._sync.client import BaseClient
from ._sync.transport import Transport

MAX_QUEUE_EVENTS = 10_000
MAX_QUEUE_BYTES = 32 * 1_048_576
FLUSH_INTERVAL = 0.05


class Client(BaseClient):
    """Records and reads runs, for programs with threads. One client is enough for a program.

    `url` defaults to `RUNREEL_URL`, else http://127.0.0.1:7717; `token`, a JWT or an API token, to `RUNREEL_TOKEN`,
    else none. `timeout` (seconds) limits each network wait, `retries` how often a read is retried. `verify` configures
    TLS verification: True for the default authorities (or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`), the path of a
    file or folder of certificates, an `ssl.SSLContext`, or False for none. For a proxy, pass an `httpx2.Client` as
    `http`: it is used for everything, unchanged, and not closed; TypeError for a client of another library.

    Events wait in a queue of at most `max_queue_events` and `max_queue_bytes`, from which one thread sends batches
    every `flush_interval` seconds. An unreachable server does not block the program: events that do not fit into the
    queue are dropped, counted in `dropped`, and reported by a warning of the logger `runreel`. `on_error="raise"`
    raises such an error with the next call instead, `"ignore"` is silent. Requests that read always raise.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        on_error: OnError = "warn",
        max_queue_events: int = MAX_QUEUE_EVENTS,
        max_queue_bytes: int = MAX_QUEUE_BYTES,
        flush_interval: float = FLUSH_INTERVAL,
        verify: Verify = True,
        http: httpx2.Client | None = None,
    ) -> None:
        transport = Transport(url, token=token, timeout=timeout, retries=retries, verify=verify, client=http)
        sender = Sender(
            transport,
            on_error=on_error,
            max_events=max_queue_events,
            max_bytes=max_queue_bytes,
            flush_interval=flush_interval,
        )
        super().__init__(transport, sender, retries)


class AsyncClient(AsyncBaseClient):
    """Records and reads runs, for event loops. The arguments and their meaning are those of `Client`, except `http`:
    events are sent by a thread, which cannot use an `httpx2.AsyncClient`.

    Emitting never waits: a background thread sends, without using the loop. Methods that read are awaited, and those
    that iterate are asynchronous generators: to leave one early, use `contextlib.aclosing`, so that its connection
    closes at once.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        on_error: OnError = "warn",
        max_queue_events: int = MAX_QUEUE_EVENTS,
        max_queue_bytes: int = MAX_QUEUE_BYTES,
        flush_interval: float = FLUSH_INTERVAL,
        verify: Verify = True,
    ) -> None:
        transport = AsyncTransport(url, token=token, timeout=timeout, retries=retries, verify=verify)
        sender = Sender(
            Transport(url, token=token, timeout=timeout, verify=verify),
            on_error=on_error,
            max_events=max_queue_events,
            max_bytes=max_queue_bytes,
            flush_interval=flush_interval,
        )
        super().__init__(transport, sender, retries)
