"""Removal of a million events by age beside live runs: how long it takes, and what it costs those who emit.

    python benches/aging.py --server target/release/runreel

A log of runs of the last four months is made, as a file of the export's form, and imported: everything in the older
months has ended, in the newest of them one run in fifty has not. The server is then started anew with `--run-ttl`,
while eight producers emit to live runs. At the end nothing may be missing but what was due: the live runs are
contiguous, those that had not ended are exported byte for byte as before, and a reader with an old cursor is told of
the gap. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import http.client
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

MONTHS = 4
RUN_EVENTS = 500
PRODUCERS = 8
PAUSE_S = 0.02


class Server:
    def __init__(self, program: str, data: str, *flags: str) -> None:
        command = [program, "serve", "--listen", "127.0.0.1:0", "--data-dir", data, "--log-format", "json", *flags]
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if line.startswith("{"):
                self.log.append(json.loads(line))

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        return call(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), method, path, body, **headers)

    def counted(self, name: str) -> int:
        found = re.search(rf"^{name} (\d+)", self.call("GET", "/metrics")[1].decode(), re.M)
        return int(found[1]) if found else 0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def call(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"content-type": "application/json", **headers})
    reply = connection.getresponse()
    return reply.status, reply.read()


def spell(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def old_run(began: datetime.datetime, events: int, ends: bool) -> Iterator[bytes]:
    """The lines of a run in an export."""
    stamp = int(began.timestamp() * 1_000)
    digits = f"{stamp:012x}7{secrets.token_hex(2)[:3]}8{secrets.token_hex(8)[:15]}"
    run = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    lines: list[bytes] = [
        spell({"run": {"run_id": run, "role": "agent", "agent": "old", "origin": None, "trace_id": None}})
    ]
    created = {"title": None, "input": None, "metadata": {}, "tags": [], "root_run_id": run, "parent_run_id": None}
    created |= {"thread_id": None, "session_id": None, "lease_ms": None}
    for seq in range(1, events + 1):
        kind, payload = "log.info", {"message": f"{seq} " + "x" * 100}
        if seq == 1:
            kind, payload = "run.created", created
        elif seq == 2:
            kind, payload = "run.started", {}
        elif seq == events and ends:
            kind, payload = "run.completed", {"output": "done"}
        at = (began + datetime.timedelta(milliseconds=seq)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        lines.append(
            spell({"event": {"seq": seq, "type": kind, "role": "agent", "agent": "old", "at": at, "payload": payload}})
        )
    chain = hashlib.sha256(lines[0]).digest()
    for line in lines[1:]:
        chain = hashlib.sha256(chain + line).digest()
    status = "completed" if ends else "running"
    yield from lines
    yield spell({"end": {"run_id": run, "last_seq": events, "status": status, "sha256": chain.hex()}})


def write_log(path: str, events: int) -> list[str]:
    """Writes the log; returns the runs that have not ended."""
    now = datetime.datetime.now(datetime.UTC)
    first = (now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - datetime.timedelta(days=1)).replace(day=1)
    newest = first
    for _ in range(MONTHS - 1):
        first = (first - datetime.timedelta(days=1)).replace(day=1)
    count = events // RUN_EVENTS
    span = (now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - first) / (count + 1)
    live: list[str] = []
    with open(path, "wb") as file:
        head = spell({"runreel_export": 1})
        file.write(head + b"\n")
        chain = hashlib.sha256(head).digest()
        for n in range(count):
            began = first + span * (n + 1)
            ends = began < newest or n % 50 != 0
            lines = list(old_run(began, RUN_EVENTS, ends))
            file.writelines(line + b"\n" for line in lines)
            chain = hashlib.sha256(chain + lines[-1]).digest()
            if not ends:
                live.append(json.loads(lines[0])["run"]["run_id"])
        total = {"runs": count, "events": count * RUN_EVENTS, "sha256": chain.hex()}
        file.write(spell({"total": total}) + b"\n")
    return live


def emit_while(server: Server, goes_on: Callable[[], bool]) -> tuple[list[float], list[tuple[str, int]]]:
    """How long each acknowledgement took, milliseconds; and the runs, each with its last seq."""
    took: list[float] = []
    runs: list[tuple[str, int]] = []

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        run = json.loads(call(connection, "POST", "/api/runs", {})[1])["run_id"]
        last = 2
        while goes_on():
            began = time.monotonic()
            status, text = call(connection, "POST", f"/api/runs/{run}/events", {"type": "log.info", "payload": {}})
            assert status == 200, text
            took.append((time.monotonic() - began) * 1_000)
            last += 1
            time.sleep(PAUSE_S)
        runs.append((run, last))

    threads = [threading.Thread(target=work) for _ in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(took), runs


def told(what: str, took: list[float]) -> None:
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {took[-1]:.1f} ms of {len(took)} emits", flush=True)


def for_seconds(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def until_removed(server: Server, runs: int) -> Callable[[], bool]:
    """Until so many runs were removed, and two seconds longer."""
    state = {"done": None}

    def watch() -> None:
        until = time.monotonic() + 300
        while server.counted("runreel_retention_runs_removed_total") < runs and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(2)
        state["done"] = True  # type: ignore[assignment]

    threading.Thread(target=watch, daemon=True).start()
    return lambda: state["done"] is None


def seqs(server: Server, run: str) -> list[int]:
    lines = server.call("GET", f"/api/runs/{run}/events", accept="application/x-ndjson")[1].splitlines()
    return [json.loads(line)["seq"] for line in lines]


def first_event(server: Server, cursor: str) -> str:
    """The name of the first frame of the feed after a cursor."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/api/stream/runs", None, {"last-event-id": cursor})
    reply = connection.getresponse()
    while not (line := reply.readline()).startswith(b"event: "):
        assert line
    return line.decode().removeprefix("event: ").strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, help="the program")
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        data, archive = f"{folder}/data", f"{folder}/old.ndjson"
        live = write_log(archive, options.events)
        due = options.events // RUN_EVENTS - len(live)
        server = Server(options.server, data)
        url = f"http://127.0.0.1:{server.port}"
        try:
            server.call("POST", "/api/runs", {"title": "so that the cursor is not the beginning"})
            cursor = json.loads(server.call("GET", "/api/runs?limit=1")[1])["stream_cursor"]
            began = time.monotonic()
            subprocess.run(
                [options.server, "import", "--url", url, archive],
                check=True,
                stdout=sys.stderr,
                stderr=subprocess.DEVNULL,
            )
            imported = time.monotonic()
            print(f"imported {options.events} events in {imported - began:.0f} s", flush=True)
            exports = {run: server.call("GET", f"/api/runs/{run}/export")[1] for run in live}
            told("quiet", emit_while(server, for_seconds(20))[0])
            # A month is dropped when everything in it has been there for a minute.
            time.sleep(max(0.0, 65 - (time.monotonic() - imported)))
        finally:
            server.stop()
        server = Server(options.server, data, "--run-ttl", "5")
        try:
            began = time.monotonic()
            took, runs = emit_while(server, until_removed(server, due))
            told("beside the removal", took)
            removed = server.counted("runreel_retention_runs_removed_total")
            events = server.counted("runreel_retention_events_removed_total")
            print(f"removed {removed} runs, {events} events in {time.monotonic() - began - 2:.1f} s")
            for line in server.log:
                fields = line.get("fields", line)
                if fields.get("message") == "a month dropped by age":
                    counts = f"{fields['runs']} runs, {fields['events']} events"
                    print(f"  month {fields['month']}: {counts}, {fields['ms']} ms")
            broken = sum(seqs(server, run) != list(range(1, last + 1)) for run, last in runs)
            touched = sum(server.call("GET", f"/api/runs/{run}/export")[1] != exports[run] for run in live)
            print(f"live runs with a gap: {broken} of {len(runs)}; not ended and touched: {touched} of {len(live)}")
            told_first = first_event(server, cursor)
            print(f"a reader below what was removed is told first: {told_first}")
            return int(broken + touched > 0 or removed != due or told_first != "stream.gap")
        finally:
            server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
