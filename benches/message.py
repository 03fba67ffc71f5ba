"""What one message costs: through a channel to the `echo` model, beside the same run created directly, in one run.

    python benches/message.py --server target/release/runreel                     on an embedded cluster
    python benches/message.py --server … --database-url postgres://…              on a Postgres of one's own

Needs `psycopg[binary]`, and pg_stat_statements among the shared libraries of a Postgres of one's own; in the embedded
one it is set up. Statements and commits are counted by Postgres, begin and commit among the statements; what an idle
server asks in the same time is taken off. A commit counts as a write when it took a transaction id. Times run from
the request until the end of the run is read from its stream; messages and direct runs alternate.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

CONFIG = '[agents.echo]\nmodel = "echo"\n[channels.web]\nagent = "echo"\n'
COUNTED = ("statements", "commits", "writing commits", "events", "event commits", "checkpoints")
BOUNDS = {"statements": 60, "event commits": 8, "events": 12}


@dataclass
class Server:
    port: int
    database: str

    def post(self, path: str, body: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status in (201, 202), text
        connection.close()
        return json.loads(text)

    def until_end(self, run: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/api/stream/runs/{run}", headers={"accept": "text/event-stream"})
        reply = connection.getresponse()
        while reply.readline() != b"event: stream.end\n":
            pass
        connection.close()

    def message(self, n: int) -> float:
        began = time.perf_counter()
        told = self.post("/api/channels/web/messages", {"chat_id": "1", "user_id": "1", "text": f"hello {n}"})
        self.until_end(told["run_id"])
        return (time.perf_counter() - began) * 1_000

    def direct(self, n: int) -> float:
        began = time.perf_counter()
        asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": f"hello {n}"}]}]}
        body = {"agent": "echo", "start": False, "input": asked, "thread_id": "direct"}
        self.until_end(self.post("/api/runs", body)["run_id"])
        return (time.perf_counter() - began) * 1_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--database-url", help="a Postgres of one's own")
    parser.add_argument("--messages", type=int, default=200)
    options = parser.parse_args()
    with started(options.server.resolve(), options.database_url) as server:
        for n in range(20):
            server.message(n), server.direct(n)
        times: dict[str, list[float]] = {"message": [], "direct": []}
        for n in range(options.messages):
            times["message"].append(server.message(n))
            times["direct"].append(server.direct(n))
        print(f"{'':18}{'p50':>9}{'p90':>9}   milliseconds until the run's end is read")
        for name, each in times.items():
            tenths = statistics.quantiles(each, n=10)
            print(f"{name:18}{statistics.median(each):9.1f}{tenths[8]:9.1f}")
        ratio = statistics.median(times["message"]) / statistics.median(times["direct"])
        print(f"{'ratio':18}{ratio:9.2f}{'':>9}   at most 1.3\n")
        with psycopg.connect(server.database, autocommit=True) as connection:
            per = {name: counted(connection, server, name, options.messages) for name in times}
            print(f"{'':18}{'message':>9}{'direct':>9}")
            for what in COUNTED:
                bound = f"   at most {BOUNDS[what]}" if what in BOUNDS else ""
                print(f"{what:18}{per['message'][what]:9.1f}{per['direct'][what]:9.1f}{bound}")
            print("\nstatements of a message, by their text\n")
            for calls, text in asked(connection, server, options.messages):
                print(f"{calls:6.1f}  {' '.join(text.split())[:110]}")
    over = [what for what, most in BOUNDS.items() if per["message"][what] > most + 0.05]
    print(f"\nover the bound: {', '.join(over)}" if over else "\nwithin the bounds")
    return 0


def counted(connection: psycopg.Connection[Any], server: Server, name: str, times: int) -> dict[str, float]:
    """What each of so many costs, without what goes on anyway."""
    before, began = snapshot(connection), time.perf_counter()
    for n in range(times):
        getattr(server, name)(n)
    time.sleep(1)
    after, took = snapshot(connection), time.perf_counter() - began
    time.sleep(took)
    idle = snapshot(connection)
    return {what: max(0, 2 * after[what] - before[what] - idle[what]) / times for what in COUNTED}


def asked(connection: psycopg.Connection[Any], server: Server, times: int) -> list[tuple[float, str]]:
    connection.execute("select pg_stat_statements_reset()")
    for n in range(times):
        server.message(n)
    rows = connection.execute("select calls, query from pg_stat_statements order by calls desc").fetchall()
    return [(calls / times, text) for calls, text in rows if calls >= times / 4]


def snapshot(connection: psycopg.Connection[Any]) -> dict[str, int]:
    # A session sends its figures when it rests, at most once a second.
    time.sleep(1.2)
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute(
        """select (select sum(calls) from pg_stat_statements),
                  (select xact_commit from pg_stat_database where datname = current_database()),
                  txid_snapshot_xmax(txid_current_snapshot()),
                  (select count(*) from store.run_event),
                  (select count(distinct xmin::text) from store.run_event),
                  (select count(*) from store.checkpoint)"""
    ).fetchone()
    assert row is not None
    return dict(zip(COUNTED, (int(value) for value in row), strict=True))


@contextmanager
def started(program: Path, database_url: str | None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="runreel-message-") as folder:
        Path(folder).chmod(0o711)
        data = Path(folder) / "data"
        config = Path(folder) / "runreel.toml"
        config.write_text(CONFIG)
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        database = database_url
        if database_url:
            environment["DATABASE_URL"] = database_url
        else:
            # The library is loaded when the cluster starts, so it is started twice.
            with running(program, data, config, environment):
                database = embedded(data)
                with psycopg.connect(database, autocommit=True) as connection:
                    connection.execute("alter system set shared_preload_libraries = 'pg_stat_statements'")
        with running(program, data, config, environment) as (port, _):
            database = database_url or embedded(data)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("create extension if not exists pg_stat_statements")
            yield Server(port, database)


def embedded(data: Path) -> str:
    password = (data / "postgres.pass").read_text().strip().rsplit(":", 1)[1]
    return f"host={data / 'socket'} user=runreel dbname=runreel password={password}"


@contextmanager
def running(program: Path, data: Path, config: Path, environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """A server: its port, and the id of its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(data), "--config", str(config)]
    log = data.parent / "server.log"
    with log.open("ab") as told:
        server = subprocess.Popen([program, *arguments], stdout=told, stderr=told, env=environment)
    try:
        for _ in range(600):
            if server.poll() is not None:
                raise SystemExit(log.read_text())
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
