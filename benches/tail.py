"""How long the end of one owner's feed takes to read beside a large log of somebody else.

    python benches/tail.py --server target/release/runreel                   10 000 000 foreign events
    python benches/tail.py --server … --events 1000000

Starts a server with an embedded Postgres and `--auth jwt`, writes 1 500 events in 5 runs of one owner, then the foreign
ones, in runs of 500 000, and reads the first owner's feed with `tail=N`, 20 times each. Times run from the request
until `stream.caught_up` is read.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from message import running

SECRET = "measured-" * 8
BATCH, RUN = 5_000, 500_000
BOUND = 100.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the other owner")
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"RUNREEL_AUTH": "jwt", "RUNREEL_JWT_SECRET": SECRET}
    with tempfile.TemporaryDirectory(prefix="runreel-tail-") as folder:
        Path(folder).chmod(0o711)
        config = Path(folder) / "runreel.toml"
        config.touch()
        with running(options.server.resolve(), Path(folder) / "data", config, environment) as (port, _):
            for _ in range(5):
                write(port, "reader", 300, 300)
            began = time.perf_counter()
            with ThreadPoolExecutor(4) as writers:
                for _ in writers.map(lambda _: write(port, "other", RUN, BATCH), range(options.events // RUN)):
                    print(".", end="", flush=True)
            print(f" {options.events} foreign events in {time.perf_counter() - began:.0f} s")
            slowest = 0.0
            for tail in (10, 100, 1000):
                times = [feed(port, tail) for _ in range(20)]
                slowest = max(slowest, *times)
                print(f"tail={tail:<5} median {statistics.median(times):5.1f} ms   longest {max(times):5.1f} ms")
    print("within the bound" if slowest <= BOUND else f"over the bound of {BOUND} ms")
    return 0


def write(port: int, owner: str, events: int, batch: int) -> None:
    """A run of this owner with so many events."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"content-type": "application/json", "authorization": f"Bearer {token(owner)}"}
    body = json.dumps([{"type": "custom.big", "payload": {"n": n}} for n in range(batch)])
    connection.request("POST", "/api/runs", "{}", headers)
    run = json.loads(connection.getresponse().read())["run_id"]
    for _ in range(events // batch):
        while True:
            connection.request("POST", f"/api/runs/{run}/events", body, headers)
            reply = connection.getresponse()
            told = reply.read()
            if reply.status in (200, 201):
                break
            assert reply.status in (429, 503), told
            time.sleep(float(reply.headers["retry-after"]))


def feed(port: int, tail: int) -> float:
    """Milliseconds until the last events of the reader's feed are read."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {token('reader')}"}
    connection.request("GET", f"/api/stream/runs?tail={tail}", headers=headers)
    reply, events = connection.getresponse(), 0
    while (line := reply.readline()) != b"event: stream.caught_up\n":
        assert line, "the stream ended"
        events += line.startswith(b"data: ")
    took = (time.perf_counter() - began) * 1_000
    assert events >= tail, f"{events} events"
    connection.close()
    return took


def token(subject: str) -> str:
    """A JWT of this subject for an hour."""

    def encoded(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    claims = {"sub": subject, "exp": int(time.time()) + 3_600}
    signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{encoded(hmac.digest(SECRET.encode(), signed.encode(), hashlib.sha256))}"


if __name__ == "__main__":
    sys.exit(main())
