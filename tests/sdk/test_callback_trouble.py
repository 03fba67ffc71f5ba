"""RunreelCallback where something goes wrong: odd states, calls that come too late, servers that fall silent."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from recorded import State, config, events

from conftest import Fake, answer
from runreel import Client, ConnectionFailed
from runreel.langgraph import RunreelCallback, RunreelSaver
from runreel.openai_agents import RunreelTraceProcessor


class Form(BaseModel):
    """A class that a state may hold as it is."""

    size: int = 1


class Sealed:
    """Nothing can be learned of it."""

    def model_dump(self) -> Any:
        raise RuntimeError("sealed")

    def __bool__(self) -> bool:
        raise RuntimeError("sealed")

    def __repr__(self) -> str:
        return "<sealed>"


class Odd(TypedDict, total=False):
    """A state of anything."""

    thing: Any
    messages: Any


def holding(thing: Any) -> Any:
    graph = StateGraph(Odd).add_node("first", lambda state: {"thing": thing}).add_node("second", lambda state: {})
    return graph.add_edge(START, "first").add_edge("first", "second").compile(name="odd")


@pytest.mark.parametrize("thing", [Form, Sealed(), {"deep": [Form, Sealed()]}, object])
def test_a_state_that_holds_anything_is_one_run_that_ends(
    callback: RunreelCallback, client: Client, thing: Any
) -> None:
    thread = f"holding-{type(thing).__name__}-{getattr(thing, '__name__', '')}"
    holding(thing).invoke({"thing": thing, "messages": thing}, config(callback, thread))
    (run,) = client.list_runs(thread_id=thread)
    assert run["status"] == "completed"
    assert run["output"].keys() == run["input"].keys() == {"thing", "messages"}


def test_instances_of_models_are_still_shown_by_their_members(callback: RunreelCallback) -> None:
    holding(Form(size=3)).invoke({}, config(callback, "instance"))
    assert events(callback)[-1].payload["output"] == {"thing": {"size": 3}}


def test_a_question_of_anything_is_asked(callback: RunreelCallback, saver: RunreelSaver) -> None:
    question = {"action_requests": 5, (1, 2): float("nan")}
    graph = StateGraph(State).add_node("ask", lambda state: {"said": [interrupt(question)]}).add_edge(START, "ask")
    graph.compile(checkpointer=saver).invoke({"said": []}, config(callback, "odd-question"))
    (asked,) = (event for event in events(callback) if event.type == "interrupt.requested")
    assert asked.payload["prompt"].startswith('{"action_requests": 5')


def test_what_a_cancelled_node_still_calls_is_no_run_of_its_own(callback: RunreelCallback, client: Client) -> None:
    working, cancelled, done = threading.Event(), threading.Event(), threading.Event()
    inner = RunnableLambda(lambda given: given, name="inner")
    late = RunnableLambda(inner.invoke, name="late")

    def work(state: State, config: RunnableConfig) -> State:
        working.set()
        assert cancelled.wait(20)
        late.invoke(1, config)
        done.set()
        return {}

    graph = StateGraph(State).add_node("work", work).add_edge(START, "work").compile(name="cut")

    async def cut() -> None:
        task = asyncio.create_task(graph.ainvoke({"said": []}, config(callback, "cut")))
        await asyncio.to_thread(working.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()
        assert await asyncio.to_thread(done.wait, 20)

    asyncio.run(cut())
    client.flush()
    assert [(run["title"], run["status"]) for run in client.list_runs(thread_id="cut")] == [("cut", "cancelled")]
    assert callback._frames == {}


def test_what_lies_in_a_run_that_could_not_begin_is_no_run_either(
    callback: RunreelCallback, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "raise_error", False)
    monkeypatch.setattr(callback, "_begin", lambda *given: 1 / 0)
    holding(1).invoke({}, config(callback, "never-begun"))
    assert list(client.list_runs(thread_id="never-begun")) == []


def test_what_is_remembered_of_calls_that_are_over_is_bounded(
    callback: RunreelCallback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runreel.langgraph.observer.REMEMBERED", 3)
    for _ in range(3):
        holding(1).invoke({}, config(callback, "bounded"))
    assert len(callback._over) == 3


def silent_to_questions(handler: BaseHTTPRequestHandler) -> None:
    """Takes what is written and answers nothing that is asked."""
    if handler.command == "GET":
        handler.rfile.read(1)
        handler.close_connection = True
    else:
        answer(200, {})(handler)


def asking_on(fake: Fake, callback: RunreelCallback) -> Any:
    fake.otherwise = silent_to_questions
    graph = StateGraph(State).add_node("n", lambda state: {"said": ["x"]}).add_edge(START, "n").compile()
    return graph.invoke(Command(update={"said": ["y"]}), config(callback, "silent"))


@pytest.mark.parametrize("run_id", [None, "01890000-0000-7000-8000-000000000000"])
def test_a_server_that_falls_silent_is_asked_once_and_not_waited_for(fake: Fake, run_id: str | None) -> None:
    with Client(fake.url) as client:
        began = time.monotonic()
        asking_on(fake, RunreelCallback(client=client, run_id=run_id))
        # Less than a call may take.
        assert time.monotonic() - began < 25
    assert [seen.method for seen in fake.requests].count("GET") == 1
    assert "POST" in [seen.method for seen in fake.requests]


def test_a_server_that_falls_silent_is_an_error_where_errors_are_wanted(fake: Fake) -> None:
    with Client(fake.url) as client, pytest.raises(ConnectionFailed):
        asking_on(fake, RunreelCallback(client=client, on_error="raise"))


def test_a_server_that_falls_silent_is_not_spoken_of_where_errors_are_ignored(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(fake.url) as client:
        asking_on(fake, RunreelCallback(client=client, on_error="ignore"))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [("langgraph", "langgraph", "langgraph"), ("openai_agents", "agents", "openai-agents")],
)
def test_a_missing_extra_is_named_with_the_way_to_install_it(module: str, missing: str, extra: str) -> None:
    program = f"import sys; sys.path[:] = {sys.path!r}; sys.modules[{missing!r}] = None; import runreel.{module}"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert f"pip install 'runreel[{extra}]'" in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")


@pytest.mark.parametrize("part", [RunreelSaver, RunreelCallback, RunreelTraceProcessor])
def test_a_private_certificate_authority_is_taken_from_where_it_is_said_to_be(part: Any) -> None:
    with pytest.raises(FileNotFoundError):
        part("https://127.0.0.1:1", verify="/nowhere/ca.pem")


async def test_the_saver_trusts_for_event_loops_whom_it_trusts_otherwise() -> None:
    trusted = ssl.create_default_context()
    async with RunreelSaver("https://127.0.0.1:1", verify=trusted) as saver:
        assert saver._async_transport()._options()["verify"] is saver._transport._options()["verify"] is trusted
