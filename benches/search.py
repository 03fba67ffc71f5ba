"""What a search costs beside a large log, and what its index costs whoever emits, in one run.

    python benches/search.py --server target/release/runreel                  1 000 000 events
    python benches/search.py --server … --events 10000000

Starts a server with an embedded Postgres and writes runs of 100 events: messages, tool calls with arguments and
results, each event with words of its own beside common ones. It writes in eight parts, every other one while a
transaction of the bench holds back the indexer, so that both are measured on a log of about the same size; then it
waits until everything is indexed, and searches 20 times each. Times run from the request until the answer is read.

Needs `psycopg[binary]`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from message import embedded, running

RUN, BATCH, WRITERS, PARTS, TIMES = 100, 50, 4, 8, 20
BOUNDS = {"rare": 300.0, "common": 1_000.0}
# Words as people use them: a few nearly everywhere, many seldom.
WORDS = [
    f"{first}{second}"
    for first in ["ba", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu"]
    for second in [
        "bel",
        "cor",
        "dan",
        "fin",
        "gar",
        "hem",
        "jun",
        "kol",
        "mar",
        "nis",
        "pod",
        "rut",
        "sel",
        "tan",
        "vor",
    ]
]
TOOLS = ["get_weather", "search_docs", "send_mail", "read_file", "run_tests"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with tempfile.TemporaryDirectory(prefix="runreel-search-") as folder:
        Path(folder).chmod(0o711)
        config = Path(folder) / "runreel.toml"
        config.touch()
        with running(options.server.resolve(), Path(folder) / "data", config, environment) as (port, _):
            database = embedded(Path(folder) / "data")
            runs = options.events // RUN
            rates = written(port, database, runs)
            without, beside = (statistics.median(rates[which]) for which in ("without", "beside"))
            print(f"{runs * RUN} events in {runs} runs")
            print(f"{'emitted without the indexer':34}{without:10.0f} events/s")
            print(f"{'emitted beside the indexer':34}{beside:10.0f} events/s   {beside / without:.2f} of that")
            indexed(database)
            sizes(database)
            within = searched(port)
    print("within the bounds" if within else f"over a bound: {BOUNDS} ms")
    return 0


def written(port: int, database: str, runs: int) -> dict[str, list[float]]:
    """Events per second of each part."""
    rates: dict[str, list[float]] = {"without": [], "beside": []}
    for part in range(PARTS):
        share = range(part * runs // PARTS, (part + 1) * runs // PARTS)
        which = "beside" if part % 2 else "without"
        if which == "beside":
            emit(port, share, rates[which])
        else:
            with held(database):
                emit(port, share, rates[which])
        print(".", end="", flush=True)
    print()
    return rates


def emit(port: int, runs: range, rates: list[float]) -> None:
    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in writers.map(lambda first: write(port, runs[first::WRITERS]), range(WRITERS)):
            pass
    rates.append(len(runs) * RUN / (time.perf_counter() - began))


@contextmanager
def held(database: str) -> Iterator[None]:
    """Without the indexer: it waits for whoever holds its progress."""
    with psycopg.connect(database) as connection:
        connection.execute("select from store.search_progress for update")
        yield


def write(port: int, runs: range) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in runs:
        chance = random.Random(number)
        run = call(connection, "POST", "/api/runs", {"title": f"Task {number}: {text(chance, 4)}", "agent": "bench"})
        for first in range(0, RUN - 2, BATCH):
            events = [event(chance, number, n) for n in range(first, min(first + BATCH, RUN - 2))]
            call(connection, "POST", f"/api/runs/{run['run_id']}/events", events)
    connection.close()


def event(chance: random.Random, number: int, n: int) -> dict[str, object]:
    """Every run says `everywhere`, one in a thousand `seldom`, and each has words that no other one has."""
    if n % 5 == 0:
        said = f"{text(chance, 12)} everywhere" + (f" seldom needle{number}" if number % 1_000 == 0 and n == 0 else "")
        return {
            "type": "message.completed",
            "payload": {
                "role": "assistant",
                "model": "m-1",
                "content": [{"type": "text", "text": said}],
                "usage": {"input_tokens": chance.randrange(9_999)},
            },
        }
    span = f"call-{n // 2}"
    if n % 2:
        args = {"query": text(chance, 3), "id": f"{chance.getrandbits(48):012x}"}
        return {"type": "tool.started", "span_id": span, "payload": {"name": chance.choice(TOOLS), "args": args}}
    return {"type": "tool.completed", "span_id": span, "payload": {"result": text(chance, 15), "duration_ms": n}}


def text(chance: random.Random, count: int) -> str:
    return " ".join(WORDS[min(int(chance.paretovariate(0.6)), len(WORDS)) - 1] for _ in range(count))


def call(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> dict[str, object]:
    while True:
        connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        told = reply.read()
        if reply.status in (200, 201):
            return dict(json.loads(told))
        assert reply.status in (429, 503), told
        time.sleep(float(reply.headers["retry-after"]))


def indexed(database: str) -> None:
    left = """select sum(l.position - p.position)::bigint, sum(l.position)::bigint
              from store.lane l join store.search_progress p using (lane)"""
    with psycopg.connect(database, autocommit=True) as connection:
        began, before = time.perf_counter(), connection.execute(left).fetchone()
        while (now := connection.execute(left).fetchone()) and now[0]:
            time.sleep(0.1)
        assert before is not None
        took = time.perf_counter() - began
        print(f"{'behind at the end of it':34}{before[0]:10} events")
        if before[0]:
            print(f"{'indexed while nobody emits':34}{before[0] / took:10.0f} events/s")
        # As autovacuum does when it is due.
        connection.execute("vacuum (analyze) store.search_document")
        connection.execute("vacuum (analyze) store.run")


def sizes(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        rows = connection.execute(
            """select pg_total_relation_size('store.search_document'),
                      pg_relation_size('store.search_document_by_words'),
                      (select sum(pg_total_relation_size(inhrelid)) from pg_inherits
                       where inhparent = 'store.run_event'::regclass),
                      (select count(*) from store.search_document)"""
        ).fetchone()
        assert rows is not None
        whole, words, log, documents = (int(value) for value in rows)
        print(f"{'log, index':34}{log / 2**20:10.0f} MiB, {whole / 2**20:.0f} MiB ({words / 2**20:.0f} of it GIN)")
        print(f"{'documents':34}{documents:10}")


def searched(port: int) -> bool:
    within = True
    for kind, query in (
        ("rare", "q=needle0"),
        ("rare", "q=needle0&sort=duration"),
        ("rare", "q=seldom"),
        ("rare", "q=needle*"),
        ("rare", "q=nowhere"),
        ("rare", f"q={quote('needle0 everywhere')}"),
        ("common", "q=everywhere"),
        ("common", f"q={quote('everywhere get_weather')}"),
        ("common", "q=every*"),
        ("common", "q=everywhere&order=asc"),
        ("common", "q=everywhere&sort=events"),
        ("common", "model=m-1&sort=updated"),
        ("common", "sort=duration"),
        ("common", "roots=true"),
    ):
        within &= timed(port, kind, f"/api/runs?{query}")
    for kind, path in (
        ("rare", "/api/runs/histogram?q=needle0"),
        ("common", "/api/runs/histogram"),
        ("common", "/api/runs/histogram?q=everywhere"),
    ):
        within &= timed(port, kind, path)
    return within


def timed(port: int, kind: str, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times, found = [], ""
    for _ in range(TIMES):
        began = time.perf_counter()
        connection.request("GET", path)
        reply = connection.getresponse()
        told = json.loads(reply.read())
        times.append((time.perf_counter() - began) * 1_000)
        if reply.status != 200:
            found = f"{reply.status}"
        elif "runs" in told:
            found = f"{len(told['runs'])}{'+' if told['next_cursor'] else ''} runs"
        else:
            found = f"{sum(told['totals'].values())} counted"
    connection.close()
    middle, most = statistics.median(times), max(times)
    print(f"{kind:7}{path:47}{found:>14}   median {middle:7.1f} ms   longest {most:7.1f} ms")
    return most <= BOUNDS[kind] and not found.isdigit()


if __name__ == "__main__":
    sys.exit(main())
