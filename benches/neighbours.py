"""Forty principals, one of which emits and reads without measure: what the emits of the others take, quiet and then.

    python benches/neighbours.py --server target/release/runreel
    python benches/neighbours.py --server … -- --principal-events-per-second 5000      more flags for the server

Each of the 39 emits ten times a second to a run of its own and waits for the acknowledgement. The fortieth is another
process with a low priority, so that the server is measured and not the generator: 16 connections emit batches of 100
with payloads of 1 KiB, 8 read a log of 50 000 events again and again, 8 follow everything. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import multiprocessing
import os
import subprocess
import tempfile
import threading
import time
from typing import Any

SECRET = "a secret of at least thirty-two bytes"
OTHERS = 39
PAUSE_S = 0.1


def token(subject: str) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    signed = f"{part({'alg': 'HS256'})}.{part({'sub': subject, 'exp': int(time.time()) + 3_600})}"
    signature = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


class Caller:
    def __init__(self, port: int, subject: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"authorization": f"Bearer {token(subject)}", "content-type": "application/json"}

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def run(self) -> str:
        status, text = self.send("POST", "/api/runs", {})
        assert status == 201, text
        return str(json.loads(text)["run_id"])


def measure(port: int, seconds: float) -> list[float]:
    """How long each acknowledgement took, milliseconds."""
    took: list[float] = []
    until = time.monotonic() + seconds

    def work(n: int) -> None:
        caller = Caller(port, f"other-{n}")
        run = caller.run()
        time.sleep(PAUSE_S * n / OTHERS)
        while time.monotonic() < until:
            began = time.monotonic()
            status, text = caller.send("POST", f"/api/runs/{run}/events", {"type": "log.info", "payload": {"n": n}})
            assert status == 200, text
            took.append((time.monotonic() - began) * 1_000)
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(OTHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(took)


def flood(port: int, begun: Any, sent: Any) -> None:
    os.nice(19)
    first = Caller(port, "greedy")
    big = first.run()
    batch = [{"type": "log.info", "payload": {"text": "x" * 1_024}} for _ in range(100)]
    for _ in range(500):
        while first.send("POST", f"/api/runs/{big}/events", batch)[0] != 200:
            time.sleep(0.1)

    def again(work: Any) -> None:
        while True:
            try:
                work(Caller(port, "greedy"))
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    def emit(caller: Caller) -> None:
        run = caller.run()
        while True:
            status, _ = caller.send("POST", f"/api/runs/{run}/events", batch)
            with sent.get_lock():
                sent.value += 100 * (status == 200)

    def read(caller: Caller) -> None:
        caller.headers["accept"] = "application/x-ndjson"
        while True:
            caller.send("GET", f"/api/runs/{big}/events")

    def follow(caller: Caller) -> None:
        caller.connection.request("GET", "/api/stream/runs", None, caller.headers)
        reply = caller.connection.getresponse()
        while reply.read(65_536):
            pass

    for work, connections in ((emit, 16), (read, 8), (follow, 8)):
        for _ in range(connections):
            threading.Thread(target=again, args=(work,), daemon=True).start()
    begun.set()
    time.sleep(3_600)


def told(what: str, took: list[float]) -> float:
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {took[-1]:.1f} ms of {len(took)} emits", flush=True)
    return p99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, help="the program")
    parser.add_argument("--seconds", type=float, default=20, help="how long each part takes")
    parser.add_argument("flags", nargs="*", help="more flags of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        command = [options.server, "serve", "--auth", "jwt", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"]
        server = subprocess.Popen(
            [*command, *options.flags],
            env={**os.environ, "RUNREEL_JWT_SECRET": SECRET},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        begun, sent = multiprocessing.Event(), multiprocessing.Value("q", 0)
        greedy = multiprocessing.Process(target=flood, args=(port, begun, sent), daemon=True)
        try:
            measure(port, 2)
            quiet = told("quiet", measure(port, options.seconds))
            greedy.start()
            assert begun.wait(120), "the flood did not begin"
            before = sent.value
            beside = told("beside the flood", measure(port, options.seconds))
            print(f"the flood: {(sent.value - before) / options.seconds:.0f} events/s acknowledged")
            print(f"p99 beside the flood ÷ quiet: {beside / quiet:.1f} (bar: 2)")
        finally:
            if greedy.pid:
                greedy.kill()
            server.terminate()
            server.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
