"""What a checkpoint costs: RunreelSaver against the official PostgresSaver, in one run on one PostgreSQL.

    python benches/checkpoints.py --server target/release/runreel

Needs `runreel[langgraph]`, `langgraph`, `langgraph-checkpoint-postgres` and `psycopg[binary]`, and the programs of a
PostgreSQL. It starts a cluster of its own with two databases, one for the server and one for the official saver, and
takes it down again. Both savers do the same 100 steps (put, put_writes, get_tuple) in rounds of alternating order, each
on one connection. Times are milliseconds; bytes are those of the tables with their indexes and TOAST after VACUUM FULL,
and of the rows alone, divided by the steps.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row

from runreel.langgraph import RunreelSaver

STEPS = 100
TABLES = {
    "official": ["checkpoints", "checkpoint_blobs", "checkpoint_writes"],
    "runreel": ["store.thread", "store.checkpoint", "store.blob", "store.pending_write"],
}
OPERATIONS = ("put", "put_writes", "get_tuple", "step")


@dataclass
class Measured:
    """Milliseconds of each operation, and of a whole graph for each of its steps."""

    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})
    graph: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, type=Path, help="the runreel binary")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pg-bin", type=Path, help="the folder of initdb and pg_ctl")
    options = parser.parse_args()
    with cluster(options.pg_bin or newest_postgres()) as socket, server(options.server, socket) as url:
        official = f"host={socket} dbname=official user=bench"
        with (
            psycopg.connect(official, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection,
            RunreelSaver(url) as runreel,
        ):
            postgres = PostgresSaver(connection)
            postgres.setup()
            databases = {"official": official, "runreel": f"host={socket} dbname=runreel user=bench"}
            compare({"official": postgres, "runreel": runreel}, databases, options.rounds)


def compare(savers: dict[str, BaseCheckpointSaver[Any]], databases: dict[str, str], rounds: int) -> None:
    measured = {name: Measured() for name in savers}
    for saver in savers.values():
        hundred_steps(saver, Measured())
        hundred_graph_steps(saver)
    for workload, run in (("steps", hundred_steps), ("graph", None)):
        before = {name: stored(databases[name], TABLES[name]) for name in savers}
        for turn in range(rounds):
            for name in sorted(savers, reverse=bool(turn % 2)):
                if run is not None:
                    run(savers[name], measured[name])
                else:
                    measured[name].graph.append(hundred_graph_steps(savers[name]))
        after = {name: stored(databases[name], TABLES[name]) for name in savers}
        if workload == "steps":
            print(f"{rounds} rounds of {STEPS} steps, state of about 1.3 kB; milliseconds\n")
            times_table(measured)
        else:
            print(f"\n{rounds} graphs of {STEPS} steps; milliseconds for a step\n")
            line("graph step", *(statistics.median(measured[name].graph) for name in ("official", "runreel")))
        print("\nbytes stored for a step\n")
        for position, what in enumerate(("tables", "rows")):
            growth = {name: (after[name][position] - before[name][position]) / rounds / STEPS for name in savers}
            line(what, growth["official"], growth["runreel"])


def times_table(measured: dict[str, Measured]) -> None:
    print(f"{'':16}{'official':>12}{'runreel':>12}{'ratio':>8}")
    for operation in OPERATIONS:
        official, runreel = (measured[name].times[operation] for name in ("official", "runreel"))
        line(f"{operation} p50", statistics.median(official), statistics.median(runreel))
        line(f"{operation} p99", statistics.quantiles(official, n=100)[98], statistics.quantiles(runreel, n=100)[98])


def line(what: str, official: float, runreel: float) -> None:
    print(f"{what:16}{official:12.2f}{runreel:12.2f}{runreel / official:8.2f}")


def hundred_steps(saver: BaseCheckpointSaver[Any], measured: Measured) -> None:
    """A conversation of which the last eight messages are kept, with the channels a small agent has."""
    thread = {"thread_id": f"steps-{uuid.uuid4()}", "checkpoint_ns": ""}
    config: Any = {"configurable": thread}
    messages: list[AnyMessage] = []
    versions: dict[str, Any] = {}
    for step in range(STEPS):
        kind = AIMessage if step % 2 else HumanMessage
        messages = [*messages, kind(content=f"Message {step} " + "with some words " * 3, id=str(uuid.uuid4()))][-8:]
        values = {"messages": messages, "topic": "billing", "attempts": step, "plan": {"next": ["search", "answer"]}}
        new = {name: saver.get_next_version(versions.get(name), None) for name in ("messages", "attempts")}
        if not step:
            new |= {name: saver.get_next_version(None, None) for name in ("topic", "plan")}
        versions = {**versions, **new}
        checkpoint: Any = {
            **empty_checkpoint(),
            "v": 4,
            "id": str(uuid6(clock_seq=step)),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"agent": {"messages": versions["messages"]}, "tools": {"attempts": versions["attempts"]}},
            "updated_channels": list(new),
        }
        task = str(uuid.uuid4())
        writes = [("messages", [messages[-1]]), ("attempts", step + 1)]
        began = time.perf_counter()
        config = saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, new)
        put = time.perf_counter()
        saver.put_writes(config, writes, task, "~__pregel_pull, agent")
        written = time.perf_counter()
        found = saver.get_tuple({"configurable": thread})
        got = time.perf_counter()
        assert found is not None
        assert found.checkpoint["channel_values"] == values
        for name, seconds in zip(OPERATIONS, (put - began, written - put, got - written, got - began), strict=True):
            measured.times[name].append(seconds * 1_000)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], lambda old, new: [*old, *new][-8:]]
    step: int


def hundred_graph_steps(saver: BaseCheckpointSaver[Any]) -> float:
    """Milliseconds for each step of a real graph that loops a hundred times."""

    def work(state: State) -> dict[str, Any]:
        return {
            "messages": [AIMessage(content=f"Message {state['step']} " + "with some words " * 3)],
            "step": state["step"] + 1,
        }

    graph = (
        StateGraph(State)
        .add_node("work", work)
        .add_edge(START, "work")
        .add_conditional_edges("work", lambda state: "work" if state["step"] < STEPS else END)
        .compile(checkpointer=saver)
    )
    config: Any = {"configurable": {"thread_id": f"graph-{uuid.uuid4()}"}, "recursion_limit": STEPS + 5}
    began = time.perf_counter()
    graph.invoke({"messages": [], "step": 0}, config, durability="sync")
    return (time.perf_counter() - began) * 1_000 / STEPS


def stored(database: str, tables: list[str]) -> tuple[int, int]:
    """Bytes of the tables with indexes and TOAST, and of their rows."""
    with psycopg.connect(database, autocommit=True) as connection:
        whole = rows = 0
        for table in tables:
            connection.execute(f"vacuum full {table}")
            whole += single(connection, f"select pg_total_relation_size('{table}')")
            rows += single(connection, f"select coalesce(sum(pg_column_size(t.*)), 0) from {table} t")
        return whole, rows


def single(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def newest_postgres() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))


@contextmanager
def cluster(binaries: Path) -> Iterator[Path]:
    """A PostgreSQL of our own on a socket, as one that ships with defaults: it does wait for the disk."""
    folder = Path(tempfile.mkdtemp(prefix="runreel-bench-"))
    try:
        as_owner = owner_of(folder)
        run = partial_run(as_owner)
        data = folder / "data"
        run([binaries / "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"])
        start = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c autovacuum=off"
        run([binaries / "pg_ctl", "-D", data, "-o", start, "-l", folder / "log", "-w", "start"])
        try:
            with psycopg.connect(f"host={folder} dbname=postgres user=bench", autocommit=True) as connection:
                connection.execute("create database official")
                connection.execute("create database runreel")
            yield folder
        finally:
            run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def partial_run(as_owner: dict[str, Any]) -> Callable[[list[Any]], None]:
    def run(command: list[Any]) -> None:
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **as_owner)

    return run


def owner_of(folder: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root; then it runs as whom its package has made for it."""
    if os.getuid():
        return {}
    account = max((it for it in pwd.getpwall() if it.pw_name in ("nobody", "postgres")), key=lambda it: it.pw_name)
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": folder}


@contextmanager
def server(binary: Path, socket: Path) -> Iterator[str]:
    database = f"postgres://bench@localhost/runreel?host={socket}"
    command = [str(binary), "serve", "--listen", "127.0.0.1:0", "--database-url", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(text.strip() for text in process.stdout if text.startswith("http://"))
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()


if __name__ == "__main__":
    main()
