"""What it costs to save the texts of many messages that are being written, for readers of other servers.

    export RUNREEL_POSTGRES_LIBRARIES=pg_stat_statements
    tests/default-postgres .tools/python/bin/python benches/texts.py --server target/release/runreel
    … --messages 500 --seconds 60 --readers 30

Needs pg_stat_statements in the Postgres of DATABASE_URL, on which it starts two servers. Every 200 ms each message gets
one delta at the first server, of about what a model says in that time; after 15 s it is completed and the next one
begins. The readers follow runs at the second server. Rows are counted by Postgres; times of processors are of the two
servers, and of Postgres in saving and reading.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from message import running

EVERY, DELTAS = 0.2, 75
TEXT = "some forty characters of a long answer, "
CONNECTIONS = 4
TABLE = "store.open_text"


SIZE = f"select pg_relation_size('{TABLE}') / 1024, pg_indexes_size('{TABLE}') / 1024, count(*) from {TABLE}"
ROWS = f"""select n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del from pg_stat_user_tables
           where relid = '{TABLE}'::regclass"""
CALLS = """select coalesce(sum(calls), 0), coalesce(sum(total_exec_time), 0), coalesce(sum(wal_bytes), 0) / 1024
           from pg_stat_statements where query like %s"""
STATEMENTS = {"save": "%insert into store.open_text%", "read": "%max(piece)%from store.open_text%"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--messages", type=int, default=500, help="written at the same time")
    parser.add_argument("--readers", type=int, default=30, help="at the other server")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    program, environment = options.server.resolve(), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="runreel-texts-") as name:
        config = Path(name) / "runreel.toml"
        config.write_text("")
        folders = [Path(name) / part / "data" for part in ("a", "b")]
        for folder in folders:
            folder.parent.mkdir()
        with (
            running(program, folders[0], config, environment) as (a, pid_a),
            running(program, folders[1], config, environment) as (b, pid_b),
            psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection,
        ):
            connection.execute("create extension if not exists pg_stat_statements")
            runs = [created(a) for _ in range(options.messages)]
            readers = [Reader(b, run) for run in runs[: options.readers]]
            before, began = snapshot(connection, pid_a, pid_b), time.monotonic()
            late = write(a, runs, options.seconds)
            size, took = connection.execute(SIZE).fetchone(), time.monotonic() - began
            after = snapshot(connection, pid_a, pid_b)
            deltas = sum(reader.deltas for reader in readers)
    rate = {what: (after[what] - before[what]) / took for what in before}
    print(f"{options.messages} messages at a time for {took:.0f} s; {late} rounds took over {EVERY * 1_000:.0f} ms")
    for what in ("updated", "updated on its page", "inserted", "deleted"):
        print(f"rows {what:22}{rate[what]:9.0f} a second")
    for what in STATEMENTS:
        calls, ms, wal = (rate[f"{what} {unit}"] for unit in ("calls", "ms", "wal"))
        print(
            f"{what:27}{calls:9.1f} statements a second, {ms / max(calls, 0.001):.1f} ms each, {wal:.1f} KiB/s of WAL"
        )
    print(f"{'processors':27}{rate['a']:9.0%} first server, {rate['b']:.0%} second server")
    assert size is not None
    print(f"{'at the end':27}{size[2]:9} rows in {size[0]} KiB, index {size[1]} KiB")
    print(f"{'deltas read':27}{deltas:9} by {options.readers} readers")
    return 0


class Reader:
    def __init__(self, port: int, run: str) -> None:
        self.deltas = 0
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.connection.request("GET", f"/api/stream/runs/{run}", headers={"accept": "text/event-stream"})
        self.reply = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.reply:
            self.deltas += line == b"event: message.delta\n"


def created(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/api/runs", "{}", {"content-type": "application/json"})
    return str(json.loads(connection.getresponse().read())["run_id"])


def write(port: int, runs: list[str], seconds: int) -> int:
    """One request of each run every so often, many at a time on few connections; counts rounds that took too long."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    shares = [runs[n::CONNECTIONS] for n in range(CONNECTIONS)]
    late, end = 0, time.monotonic() + seconds
    for round_ in range(10**9):
        began = time.monotonic()
        if began > end:
            break
        for connection, share in zip(connections, shares, strict=True):
            connection.sendall(b"".join(request(run, round_ + n) for n, run in enumerate(share)))
        for connection, share in zip(connections, shares, strict=True):
            answered(connection, len(share))
        rest = EVERY - (time.monotonic() - began)
        late += rest < 0
        time.sleep(max(0.0, rest))
    return late


def request(run: str, n: int) -> bytes:
    """The nth step of a run: a piece of its message, or its end; runs are at different steps."""
    span = f"m{n // DELTAS}"
    event: dict[str, Any] = {"type": "message.delta", "span_id": span, "payload": {"text": TEXT}}
    if n % DELTAS == DELTAS - 1:
        event = {"type": "message.completed", "span_id": span, "payload": {"text": "all of it"}}
    body = json.dumps(event).encode()
    head = f"POST /api/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answered(connection: socket.socket, count: int) -> None:
    seen, rest = 0, b""
    while seen < count:
        piece = connection.recv(1 << 16)
        assert piece, "the server has hung up"
        rest += piece
        seen += rest.count(b"HTTP/1.1 200 OK\r\n")
        assert b"HTTP/1.1 4" not in rest, rest
        assert b"HTTP/1.1 5" not in rest, rest
        rest = rest[-16:]


def processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def snapshot(connection: psycopg.Connection[Any], first: int, second: int) -> dict[str, float]:
    # A session sends its figures when it rests, at most once a second.
    time.sleep(1.2)
    found = {"a": processor(first), "b": processor(second)}
    rows = connection.execute(ROWS).fetchone()
    found |= zip(("inserted", "updated", "updated on its page", "deleted"), map(float, rows or ()), strict=True)
    for what, text in STATEMENTS.items():
        row = connection.execute(CALLS, (text,)).fetchone()
        found |= zip((f"{what} calls", f"{what} ms", f"{what} wal"), map(float, row or ()), strict=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
