"""The same graph on the official PostgresSaver and on RunreelSaver leaves the same history."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Send, StateSnapshot, interrupt

from conftest import Server
from runreel.langgraph import RunreelSaver

# What no two runs have in common.
FLEETING = {"id", "ts", "checkpoint_id", "thread_id"}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], lambda old, new: [*old, *new]]
    topic: str
    attempts: int
    ratio: float
    done: bool
    details: dict[str, Any]
    long: str


class Inner(TypedDict, total=False):
    topic: str
    details: dict[str, Any]


def graph_on(saver: BaseCheckpointSaver[Any]) -> Any:
    """Fans out, loops, has a subgraph that asks a person, and values of every kind."""

    def plan(state: State) -> State:
        return {"attempts": state.get("attempts", 0) + 1, "ratio": 0.5, "done": False, "topic": "tr\u00edp \U0001f9f3"}

    def fan_out(state: State) -> list[Send]:
        return [Send("note", {"topic": f"{state['topic']} {place}"}) for place in ("Rome", "Bari")]

    def note(state: State) -> State:
        return {"notes": [state["topic"]]}

    def ask(state: Inner) -> Inner:
        return {"details": {"answer": interrupt({"question": state["topic"]}), "nested": {"list": [1, None, "x"]}}}

    def finish(state: State) -> State:
        return {"messages": [AIMessage("done")], "done": True, "long": "a longer text " * 20}

    inner = StateGraph(Inner).add_node("ask", ask).add_edge(START, "ask").compile()
    return (
        StateGraph(State)
        .add_node("plan", plan)
        .add_node("note", note)
        .add_node("inner", inner)
        .add_node("finish", finish)
        .add_edge(START, "plan")
        .add_conditional_edges("plan", fan_out, ["note"])
        .add_edge("note", "inner")
        .add_edge("inner", "finish")
        .add_conditional_edges("finish", lambda state: "plan" if state["attempts"] < 2 else END)
        .compile(checkpointer=saver)
    )


def live(saver: BaseCheckpointSaver[Any]) -> tuple[list[StateSnapshot], StateSnapshot]:
    """Runs, is asked and answered twice, is changed from outside, and goes back in time."""
    graph = graph_on(saver)
    config: Any = {"configurable": {"thread_id": "same", "user": "ada"}, "metadata": {"tenant": "acme"}}
    graph.invoke({"messages": [{"role": "user", "content": "hello", "id": "m1"}]}, config)
    asked = graph.get_state(config, subgraphs=True)
    graph.invoke(Command(resume="yes"), config)
    graph.invoke(Command(resume={"word": "again"}), config)
    graph.update_state(config, {"notes": ["from outside"]}, as_node="note")
    history = list(graph.get_state_history(config))
    graph.invoke(None, history[-3].config)
    return list(graph.get_state_history(config)), asked


def essence(snapshots: list[StateSnapshot]) -> list[Any]:
    """A history without what is fleeting; parents are told by their place in it."""
    places = {checkpoint_id(snapshot.config): place for place, snapshot in enumerate(snapshots)}
    return [
        {
            "values": shown(snapshot.values),
            "next": snapshot.next,
            "metadata": shown(snapshot.metadata),
            "tasks": [
                (task.name, task.path, task.error, [shown(i.value) for i in task.interrupts], shown(task.result))
                for task in snapshot.tasks
            ],
            "interrupts": [shown(interrupt.value) for interrupt in snapshot.interrupts],
            "parent": places[checkpoint_id(snapshot.parent_config)] if snapshot.parent_config else None,
        }
        for snapshot in snapshots
    ]


def checkpoint_id(config: Any) -> str:
    return str(config["configurable"]["checkpoint_id"])


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items() if name not in FLEETING}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return (value.type, value.content) if hasattr(value, "content") else value


@pytest.fixture(scope="module")
def official() -> Iterator[PostgresSaver]:
    """The official saver on a PostgreSQL of its own."""
    binaries = Path(shutil.which("initdb") or max(Path("/usr/lib/postgresql").glob("*/bin/initdb"))).parent
    folder = Path(tempfile.mkdtemp(prefix="runreel-pg-"))
    settings: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": folder}
    if not os.getuid():
        # PostgreSQL does not run as root.
        account = max((it for it in pwd.getpwall() if it.pw_name in ("nobody", "postgres")), key=lambda it: it.pw_name)
        os.chown(folder, account.pw_uid, account.pw_gid)
        settings |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    control = [str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    flags = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    try:
        initdb = [str(binaries / "initdb"), "-D", str(folder / "data"), "-U", "test", "-A", "trust", "--no-sync"]
        subprocess.run([*initdb, "-E", "UTF8", "--locale", "C"], check=True, **settings)
        subprocess.run([*control, "-o", flags, "-l", str(folder / "log"), "start"], check=True, **settings)
        with PostgresSaver.from_conn_string(f"host={folder} dbname=postgres user=test") as saver:
            saver.setup()
            yield saver
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, **settings)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_graph_leaves_the_same_history_as_on_the_official_postgres_saver(
    server: Server, official: PostgresSaver
) -> None:
    with RunreelSaver(server.url) as runreel:
        ours, ours_asked = live(runreel)
        theirs, theirs_asked = live(official)
    assert len(ours) == len(theirs) > 10
    for mine, other in zip(essence(ours), essence(theirs), strict=True):
        assert mine == other
    assert essence([ours_asked._replace(parent_config=None)]) == essence([theirs_asked._replace(parent_config=None)])
    inner, other_inner = ours_asked.tasks[0].state, theirs_asked.tasks[0].state
    assert isinstance(inner, StateSnapshot)
    assert isinstance(other_inner, StateSnapshot)
    assert shown(inner.values) == shown(other_inner.values)
    assert (inner.next, [i.value for i in inner.interrupts]) == (("ask",), [{"question": "tr\u00edp \U0001f9f3"}])
    assert other_inner.next == inner.next
