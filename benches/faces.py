"""What it costs to read a run in each protocol, side by side in one run against one server.

    python benches/faces.py --server target/release/runreel
    python benches/faces.py --server … --readers 1 10 100 --turns 200 --rounds 5

A producer writes turns, each 20 tokens, their message, and a call of a tool with its result, as one run; so many
readers follow it from its beginning in one protocol. What the log has, tokens included, counts as delivered once each
reader has the last call, whatever the protocol makes of it. Alone, a reader pays for the producer as well; of many,
the own stream shares each frame, which was encoded once. Rounds of the protocols alternate. CPU is that of the
server's process, the producer's requests included, without Postgres. For the latency one reader follows, and a call of
a tool is emitted every 5 ms: from the request to its name in the reader's socket.

A protocol's deliveries per second are at least 0.6 of those of Runreel's own stream, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from message import running

BAR = 0.6
TOKENS = 20
# Of a turn: its tokens, their message, the call and its result.
ITEMS = TOKENS + 3
TURNS_A_REQUEST = 10
PATHS = {
    "own SSE": "/api/stream/runs/{run}",
    "AG-UI": "/api/agui/runs/{run}",
    "AI SDK": "/api/ai-sdk/agents/bench/{thread}/stream",
    "Responses": "/v1/responses/resp_{run}?stream=true",
}
TICKS = os.sysconf("SC_CLK_TCK")


class Producer:
    """A run, and the connection on which it is written."""

    def __init__(self, port: int, thread: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        body = {"agent": "bench", "thread_id": thread}
        self.run = str(json.loads(self.post("/api/runs", json.dumps(body)))["run_id"])

    def post(self, path: str, body: str) -> bytes:
        while True:
            self._connection.request("POST", path, body, {"content-type": "application/json"})
            reply = self._connection.getresponse()
            told = reply.read()
            if reply.status in (200, 201):
                return told
            assert reply.status in (429, 503), told
            time.sleep(float(reply.headers["retry-after"]))

    def emit(self, events: list[dict[str, Any]]) -> None:
        self.post(f"/api/runs/{self.run}/events", json.dumps(events))


def turn(n: int) -> list[dict[str, Any]]:
    message = {"role": "assistant", "content": [{"type": "text", "text": "words and " * TOKENS}], "model": "bench"}
    tokens = [{"type": "message.delta", "span_id": f"m{n}", "payload": {"text": "words and "}} for _ in range(TOKENS)]
    return [*tokens, {"type": "message.completed", "span_id": f"m{n}", "payload": message}, *call(n)]


def call(n: int) -> list[dict[str, Any]]:
    started = {"name": mark(n), "args": {"city": "Rome"}}
    return [
        {"type": "tool.started", "span_id": f"c{n}", "payload": started},
        {"type": "tool.completed", "span_id": f"c{n}", "payload": {"name": mark(n), "result": "sunny"}},
    ]


def mark(n: int) -> str:
    return f"look_up_{n:06}"


class Readers:
    """Sockets that follow a run, and what they have."""

    def __init__(self, port: int, path: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self.bytes = 0
        self._tails: dict[socket.socket, bytes] = {}
        for _ in range(count):
            reader = socket.create_connection(("127.0.0.1", port))
            reader.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
            )
            head = reader.recv(65_536)
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise SystemExit(f"{path}: {head.decode(errors='replace')}")
            self._tails[reader] = head[-64:]
            self._selector.register(reader, selectors.EVENT_READ)

    def until(self, wanted: str) -> None:
        """Reads until each has seen this."""
        needle, waiting = wanted.encode(), set(self._tails)
        while waiting:
            for key, _ in self._selector.select():
                reader = key.fileobj
                assert isinstance(reader, socket.socket)
                data = reader.recv(262_144)
                assert data, "a stream ended"
                self.bytes += len(data)
                # Also where it is split between two reads.
                if needle in self._tails[reader] + data:
                    waiting.discard(reader)
                self._tails[reader] = data[-64:]

    def close(self) -> None:
        for reader in self._tails:
            reader.close()
        self._selector.close()


def throughput(server: tuple[int, int], path: str, thread: str, count: int, turns: int) -> tuple[float, float, float]:
    """Deliveries a second, microseconds of CPU for each, and how many KiB a reader got."""
    port, pid = server
    producer = Producer(port, thread)
    readers = Readers(port, path.format(run=producer.run, thread=thread), count)
    following = threading.Thread(target=readers.until, args=(mark(turns - 1),))
    cpu, began = cpu_seconds(pid), time.perf_counter()
    following.start()
    for first in range(0, turns, TURNS_A_REQUEST):
        last = min(first + TURNS_A_REQUEST, turns)
        producer.emit([event for n in range(first, last) for event in turn(n)])
    following.join()
    took, used = time.perf_counter() - began, cpu_seconds(pid) - cpu
    delivered = turns * ITEMS * count
    readers.close()
    producer.emit([{"type": "run.completed"}])
    return delivered / took, used / delivered * 1e6, readers.bytes / count / 1_024


def latency(port: int, path: str, thread: str, samples: int) -> list[float]:
    """Milliseconds from a request to its event in the reader's socket."""
    times = []
    producer = Producer(port, thread)
    readers = Readers(port, path.format(run=producer.run, thread=thread), 1)
    for n in range(samples):
        began = time.perf_counter()
        producer.emit(call(n))
        readers.until(mark(n))
        times.append((time.perf_counter() - began) * 1_000)
        time.sleep(0.005)
    readers.close()
    producer.emit([{"type": "run.completed"}])
    return times


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 100], help="how many follow a run")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=300, help="of the latency")
    parser.add_argument("--protocols", nargs="+", choices=PATHS, default=list(PATHS), help="the first is compared with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runreel-faces-") as folder:
        Path(folder).chmod(0o711)
        config = Path(folder) / "runreel.toml"
        config.write_text('[agents.bench]\nmodel = "echo"\n')
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        with running(options.server.resolve(), Path(folder) / "data", config, environment) as server:
            below = [name for count in options.readers for name in compared(server, count, options)]
            print(f"{'latency':12}{'p50 ms':>14}{'p99 ms':>9}")
            for name in options.protocols:
                times = latency(server[0], PATHS[name], f"latency-{name.replace(' ', '-')}", options.samples)
                hundredths = statistics.quantiles(times, n=100)
                print(f"{name:12}{hundredths[49]:14.2f}{hundredths[98]:9.2f}")
    print(f"\nbelow {BAR} of the first: {', '.join(below)}" if below else f"\neach has at least {BAR} of the first")
    return bool(below)


def compared(server: tuple[int, int], count: int, options: argparse.Namespace) -> list[str]:
    """Measures each protocol with so many readers; returns those below the bar."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in options.protocols}
    # The first round warms up.
    for n in range(options.rounds + 1):
        for name, rounds in found.items():
            thread = f"{count}-{n}-{name.replace(' ', '-')}"
            rounds.append(throughput(server, PATHS[name], thread, count, options.turns))
    print(f"{count:>4} readers{'deliveries/s':>14}{'ratio':>7}{'CPU µs':>9}{'KiB':>8}")
    medians = {
        name: [statistics.median(column) for column in zip(*rounds[1:], strict=True)] for name, rounds in found.items()
    }
    own = next(iter(medians.values()))[0]
    for name, (deliveries_s, cpu_us, kib) in medians.items():
        print(f"{name:12}{deliveries_s:14,.0f}{deliveries_s / own:7.2f}{cpu_us:9.2f}{kib:8.0f}")
    print()
    return [f"{name} with {count}" for name, row in medians.items() if row[0] < BAR * own]


if __name__ == "__main__":
    sys.exit(main())
