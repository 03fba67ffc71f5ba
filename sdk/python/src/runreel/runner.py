"""A runner: executes queued runs of some agents over one WebSocket that reconnects automatically.

```python
from runreel import Runner

def echo(run):
    with run.tool("shout", run.input) as tool:
        tool.result = str(run.input).upper()
    return tool.result

Runner(agents={"echo": echo}).run()
```
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import signal
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ._assignment import Assignment
from ._events import Decision
from ._http import address, backoff, standing_headers
from ._runner_outbox import message_json, text_member
from ._sync.transport import Transport
from .errors import RunEnded, RunreelError

__all__ = ["Assignment", "Handler", "Runner"]

SUBPROTOCOL = "runreel.runner.v1"
GIVEN_BACK = 4000
MESSAGE_BYTES = 8 * 1_048_576

log = logging.getLogger("runreel")


Handler = Callable[[Assignment], object] | Callable[[Assignment], Awaitable[object]]


class Runner:
    """`Runner(url, agents={"name": handler}).run()` — works until SIGTERM, Ctrl-C or `stop()`.

    A handler is a function, which runs in a thread of its own, or a coroutine. `capacity` is the maximum number of
    concurrent runs. An unreachable server or network only costs time: events are queued and resent, and stored once.
    `grace` (seconds) is how long current runs continue after `stop()`; the others are given back.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        agents: Mapping[str, Handler],
        token: str | None = None,
        name: str = "python",
        capacity: int = 1,
        grace: float = 30.0,
        verify: bool | ssl.SSLContext = True,
    ) -> None:
        if not agents:
            raise ValueError("a runner must serve at least one agent")
        self.url = address(url)
        self._headers = standing_headers(token)
        self._transport = Transport(url, token=token, verify=verify)
        self._agents = dict(agents)
        self._name, self._capacity, self._grace = name, capacity, grace
        self._verify = verify
        self._changed = threading.Condition()
        self._runs: dict[str, Assignment] = {}
        self._lease_id: str | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._work = asyncio.Event()
        self._ticks: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"Runner({self.url!r}, agents={sorted(self._agents)!r})"

    def run(self) -> None:
        """Works until SIGTERM, Ctrl-C or `stop()`, in this thread."""

        async def serving() -> None:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    with suppress(NotImplementedError):
                        asyncio.get_running_loop().add_signal_handler(number, self.stop)
            await self.serve()

        asyncio.run(serving())

    def stop(self) -> None:
        """Accepts no new runs; `run` returns when current runs have ended, or after the grace. Thread-safe."""
        self._stopping = True
        self._wake()

    async def serve(self) -> None:
        """`run` for a program that has an event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.current_thread()
        self._work = asyncio.Event()
        self._pool = ThreadPoolExecutor(self._capacity, thread_name_prefix="runreel-run")
        failures = 0
        try:
            while not (self._stopping and not self._runs):
                try:
                    async with self._connect() as socket:
                        if await self._talk(socket):
                            return
                        failures = 0
                except InvalidStatus as error:
                    status = error.response.status_code
                    if status in (400, 401, 403, 404, 405, 426):
                        raise _refusal(error) from None
                    log.info("%s does not accept runners now (HTTP %d)", self.url, status)
                except (OSError, ConnectionClosed, InvalidHandshake, asyncio.TimeoutError) as error:
                    log.info("%s cannot be reached: %s", self.url, type(error).__name__)
                failures += 1
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._until_stopped(), backoff(failures))
        finally:
            for run in list(self._runs.values()):
                self._forget(run, "the runner stopped")
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _connect(self) -> connect:
        scheme, _, rest = self.url.partition("://")
        secure = scheme == "https"
        context: ssl.SSLContext | None = None
        if secure:
            context = self._verify if isinstance(self._verify, ssl.SSLContext) else ssl.create_default_context()
            if self._verify is False:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {name: value for name, value in dict(self._headers).items() if name.lower() == "authorization"}
        return connect(
            f"{'wss' if secure else 'ws'}://{rest}/api/runners/connect",
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            additional_headers=headers,
            max_size=MESSAGE_BYTES + 65_536,
            ssl=context,
            proxy=None,
            ping_interval=10.0,
            ping_timeout=15.0,
            open_timeout=10.0,
        )

    async def _talk(self, socket: ClientConnection) -> bool:
        """Works over one connection; True when there is nothing more to do."""
        hello: dict[str, Any] = {
            "type": "hello",
            "runner": self._name,
            "agents": list(self._agents),
            "capacity": self._capacity,
            "version": "python",
        }
        if self._lease_id is not None:
            acked = {run_id: run._said.acked for run_id, run in self._runs.items()}
            hello["resume"] = {"lease_id": self._lease_id, "last_acked": acked}
        await socket.send(json.dumps(hello))
        welcome = json.loads(await asyncio.wait_for(socket.recv(), 10.0))
        if welcome.get("type") != "welcome":
            raise RunreelError(f"{self.url} refused the runner: {text_member(welcome, 'detail')}")
        self._lease_id = welcome["lease_id"]
        with self._changed:
            for run in self._runs.values():
                run._said.again()
        listening = asyncio.ensure_future(self._listen(socket))
        try:
            return await self._speak(socket, listening, welcome["heartbeat_ms"] / 1_000)
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed, Exception):
                await listening

    async def _speak(self, socket: ClientConnection, listening: asyncio.Future[None], heartbeat: float) -> bool:
        draining_until: float | None = None
        beat = time.monotonic()
        while not listening.done():
            self._work.clear()
            await self._send_all(socket)
            now = time.monotonic()
            if self._stopping and draining_until is None:
                draining_until = now + self._grace
                await socket.send('{"type":"drain"}')
            if draining_until is not None and (not self._runs or now >= draining_until):
                for run in list(self._runs.values()):
                    self._forget(run, "the runner stopped")
                await socket.close(GIVEN_BACK, "leaving")
                return True
            if now >= beat:
                beat = now + heartbeat
                await socket.send('{"type":"heartbeat"}')
            until = min(beat, draining_until or beat)
            working: asyncio.Future[Any] = asyncio.ensure_future(self._work.wait())
            waits: set[asyncio.Future[Any]] = {working, listening}
            await asyncio.wait(waits, timeout=max(0.0, until - now), return_when="FIRST_COMPLETED")
            working.cancel()
        return False

    async def _send_all(self, socket: ClientConnection) -> None:
        for run_id, run in list(self._runs.items()):
            with self._changed:
                messages = run._said.next()
                done = run._said.done and run._said.settled and not run._said.done_sent
                run._said.done_sent |= done
                self._changed.notify_all()
            for message in messages:
                await socket.send(message_json(run_id, message))
            if done:
                await socket.send(json.dumps({"type": "run.done", "run_id": run_id}))

    async def _listen(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for text in socket:
                self._hear(json.loads(text))

    def _hear(self, message: dict[str, Any]) -> None:
        kind, run = message.get("type"), self._runs.get(text_member(message, "run_id"))
        if kind == "run.assign":
            self._begin(message)
        elif run is None:
            if kind == "error":
                log.warning("the server: %s (%s)", message.get("detail"), message.get("code"))
        elif kind == "ack":
            with self._changed:
                run._said.ack(int(message["n"]))
            if run._said.done_sent:
                self._forget(run, "the run is done")
        elif kind == "run.cancel":
            self._forget(run, message.get("reason") or "the run was cancelled")
        elif kind == "run.resume":
            with self._changed:
                run._answers[message["interrupt_id"]] = Decision(str(message["decision"]), message.get("value"))
                self._changed.notify_all()
        elif kind == "error":
            self._trouble(run, message)
        self._wake()

    def _trouble(self, run: Assignment, message: dict[str, Any]) -> None:
        if message.get("code") in ("lease_lost", "not_assigned", "run_ended"):
            self._forget(run, text_member(message, "detail"))
        else:
            log.warning("an event was rejected: %s (%s)", message.get("detail"), message.get("code"))
            if isinstance(message.get("n"), int):
                with self._changed:
                    run._said.refused(message["n"])

    def _begin(self, message: dict[str, Any]) -> None:
        run = Assignment(self, message)
        known = self._runs.get(run.run_id)
        if known is not None:
            if known.attempt >= run.attempt:
                return
            self._forget(known, "the run was assigned again")
        self._runs[run.run_id] = run
        run._task = asyncio.ensure_future(self._carry_out(run))

    async def _carry_out(self, run: Assignment) -> None:
        handler = self._agents[run.agent]
        try:
            # Earlier answers arrive just after the assignment.
            await asyncio.sleep(0.05 if run.attempt > 1 else 0)
            if inspect.iscoroutinefunction(handler):
                output = await handler(run)
            else:
                output = await asyncio.get_running_loop().run_in_executor(self._pool, handler, run)
                output = await output if inspect.isawaitable(output) else output
        except RunEnded:
            pass
        except asyncio.CancelledError:
            run._finish("cancelled")
        except BaseException as error:
            log.info("the handler of %s raised", run.agent, exc_info=True)
            run.fail(error)
        else:
            # A run with an open question continues once it is answered.
            if not run._asked:
                run.complete(output)
        with self._changed:
            run._said.done = True
        self._wake()

    def _forget(self, run: Assignment, why: str) -> None:
        self._runs.pop(run.run_id, None)
        with self._changed:
            run._over = run._over or why
            self._changed.notify_all()
        if run._task is not None and not run._said.done:
            run._task.cancel()
        self._wake()

    def _wake(self) -> None:
        """Wakes the event loop, from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        self._work.set()
        ticks, self._ticks = self._ticks, set()
        for tick in ticks:
            if not tick.done():
                tick.set_result(None)

    async def _tick(self) -> None:
        tick: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ticks.add(tick)
        await tick

    async def _until_stopped(self) -> None:
        while not self._stopping:
            await self._tick()


def _refusal(error: InvalidStatus) -> RunreelError:
    status, detail = error.response.status_code, ""
    with suppress(ValueError):
        detail = text_member(json.loads(error.response.body or b"{}"), "detail")
    return RunreelError(f"the server rejected this runner (HTTP {status}): {detail or 'no reason was given'}")
