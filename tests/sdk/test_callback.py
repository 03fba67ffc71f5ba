"""What RunreelCallback records of LangGraph runs, on a live server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from graphs import ScriptedModel, travel_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy
from reading import said
from recorded import ASK, State, bars, config, events

from runreel import Client
from runreel.langgraph import RunreelCallback, RunreelSaver


def test_a_run_is_of_the_thread_and_the_graph_and_its_checkpoints_are_of_the_run(
    callback: RunreelCallback, saver: RunreelSaver
) -> None:
    travel_agent(saver).invoke(ASK, config(callback, "of-the-thread"))
    run = callback.client.get_run(str(callback.run_id))
    assert (run["title"], run["agent"], run["thread_id"], run["role"]) == ("travel", "travel", "of-the-thread", "agent")
    assert run["input"] == {"messages": [["user", "Book me a trip"]]}
    path = "/api/threads/of-the-thread/checkpoints"
    checkpoints = callback.client._transport.request("GET", path)["checkpoints"]
    assert {checkpoint["run_id"] for checkpoint in checkpoints} == {callback.run_id}
    (asked,) = (event for event in events(callback) if event.type == "interrupt.requested")
    assert asked.payload["kind"] == "approval"
    assert asked.payload["prompt"] == "Book Rome?"
    assert asked.payload["value"]["city"] == "Rome"
    assert asked.payload["checkpoint_id"] == checkpoints[0]["checkpoint_id"]
    saver.delete_for_runs([str(callback.run_id)])
    assert list(saver.list(config(callback, "of-the-thread"))) == []


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
def test_every_way_to_call_a_graph_is_recorded_alike(callback: RunreelCallback, saver: RunreelSaver, way: str) -> None:
    graph = travel_agent(saver)
    settings = config(callback, f"way-{way}")

    async def consumed(given: Any) -> None:
        async for _ in graph.astream(given, settings, stream_mode="messages"):
            pass

    inputs: list[Any] = [ASK, Command(resume="gladly")]
    for given in inputs:
        if way == "invoke":
            graph.invoke(given, settings)
        elif way == "stream":
            list(graph.stream(given, settings, stream_mode="messages"))
        elif way == "ainvoke":
            asyncio.run(graph.ainvoke(given, settings))
        else:
            asyncio.run(consumed(given))
    recorded = events(callback)
    assert Counter(event.type for event in recorded if event.type != "message.completed") == {
        "run.created": 1,
        "run.started": 1,
        "step.started": 6,
        "step.completed": 6,
        "tool.started": 3,
        "tool.completed": 3,
        "interrupt.requested": 1,
        "run.interrupted": 1,
        "interrupt.resolved": 1,
        "run.resumed": 1,
        "run.completed": 1,
    }
    said = [event for event in recorded if event.type == "message.completed"]
    assert [(event.payload["role"], event.text.strip()) for event in said] == [
        ("user", "Book me a trip"),
        ("assistant", "I look"),
        ("assistant", "and book"),
        ("assistant", "all booked"),
    ]
    assert said[1].payload["usage"]["total_tokens"] == 10
    called = [part for part in said[2].payload["content"] if part["type"] == "tool_call"]
    assert [(part["id"], part["name"], part["args"]) for part in called] == [
        ("call-2", "look_up", {"city": "Bari"}),
        ("call-3", "book", {"city": "Rome"}),
    ]
    assert Counter(bars(callback)) == {
        "travel": 1,
        "message": 1,
        "model": 3,
        "model > message": 3,
        "tools": 3,
        "tools > look_up": 2,
        "tools > book": 1,
    }
    assert recorded[-1].payload["output"]["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": recorded[-3].text}],
    }


def test_a_failure_is_a_failed_step_and_a_failed_run_and_reaches_the_program(callback: RunreelCallback) -> None:
    def break_down(state: State) -> State:
        raise ZeroDivisionError("by nought")

    graph = StateGraph(State).add_node("work", break_down).add_edge(START, "work").compile()
    with pytest.raises(ZeroDivisionError):
        graph.invoke({"said": []}, config(callback, "failing"))
    error = "ZeroDivisionError: by nought"
    assert [(event.type, said(event.payload["error"])) for event in events(callback)[-2:]] == [
        ("step.failed", error),
        ("run.failed", error),
    ]


def test_each_attempt_of_a_retried_node_is_a_step_of_its_own(callback: RunreelCallback) -> None:
    attempts = iter([ConnectionError("no"), None])

    def flaky(state: State) -> State:
        if error := next(attempts):
            raise error
        return {"said": ["done"]}

    policy = RetryPolicy(initial_interval=0.01, jitter=False)
    graph = StateGraph(State).add_node("flaky", flaky, retry_policy=policy).add_edge(START, "flaky").compile()
    graph.invoke({"said": []}, config(callback, "flaky"))
    assert [event.type for event in events(callback) if event.span_id] == [
        "step.started",
        "step.failed",
        "step.started",
        "step.completed",
    ]
    assert len({event.span_id for event in events(callback) if event.span_id}) == 2


class Shelf(BaseRetriever):
    """Finds one thing."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=f"about {query}", metadata={"page": 1})]


@tool
def fail(reason: str) -> str:
    """Fails."""
    raise RuntimeError(reason)


def test_subgraphs_tools_retrievers_and_models_nest_and_nothing_internal_is_shown(callback: RunreelCallback) -> None:
    model = ScriptedModel(replies=[AIMessage("noted")])
    inner = (
        StateGraph(State)
        .add_node("find", lambda state: {"said": [Shelf().invoke("cats")[0].page_content]})
        .add_edge(START, "find")
        .compile(name="library")
    )

    def call(state: State) -> State:
        (model | (lambda message: message.content)).invoke("hello")
        with pytest.raises(RuntimeError):
            fail.invoke({"reason": "no"})
        return {"said": inner.invoke({"said": []})["said"]}

    graph = (
        StateGraph(State)
        .add_node("call", call)
        .add_node("library", inner)
        .add_edge(START, "call")
        .add_conditional_edges("call", lambda state: "library")
        .add_edge("library", END)
        .compile(name="whole")
    )
    graph.invoke({"said": []}, config(callback, "nested"))
    assert bars(callback) == [
        "whole",
        "call",
        "call > message",
        "call > fail",
        "call > library",
        "call > library > find",
        "call > library > find > Shelf",
        "library",
        "library > find",
        "library > find > Shelf",
    ]
    failed = next(event for event in events(callback) if event.type == "tool.failed")
    assert said(failed.payload["error"]) == "RuntimeError: no"
    found = next(event for event in events(callback) if event.type == "tool.completed")
    assert found.payload["result"] == [{"page_content": "about cats", "metadata": {"page": 1}}]


def test_readers_see_tokens_while_a_model_writes(callback: RunreelCallback, client: Client) -> None:
    seen: list[str] = []

    def write(state: State) -> State:
        for chunk in ScriptedModel(replies=[AIMessage("one two three")]).stream("go"):
            client.flush()
            if chunk.content == "two ":
                for event in client.stream(str(callback.run_id)):
                    if event.type in ("message.delta", "message.snapshot"):
                        seen.append(str(event.payload["text"]))
                        break
        return {"said": ["written"]}

    StateGraph(State).add_node("write", write).add_edge(START, "write").compile().invoke(
        {"said": []}, config(callback, "tokens")
    )
    assert seen[0].startswith("one ")
    (message,) = (event for event in events(callback) if event.type == "message.completed")
    assert message.text == "one two three "


def test_one_callback_records_many_graphs_at_a_time(callback: RunreelCallback, client: Client) -> None:
    graph = StateGraph(State).add_node("n", lambda state: {"said": ["x"]}).add_edge(START, "n").compile(name="many")

    async def all_of_them() -> None:
        await asyncio.gather(*(graph.ainvoke({"said": []}, config(callback, f"many-{n}")) for n in range(8)))

    asyncio.run(all_of_them())
    for number in range(8):
        (run,) = client.list_runs(thread_id=f"many-{number}")
        assert run["status"] == "completed"
        assert Counter(event.type for event in client.events(run["run_id"]))["step.completed"] == 1


def test_a_stream_that_is_left_early_is_a_cancelled_run(callback: RunreelCallback) -> None:
    graph = (
        StateGraph(State)
        .add_node("a", lambda state: {"said": ["a"]})
        .add_node("b", lambda state: {"said": ["b"]})
        .add_edge(START, "a")
        .add_edge("a", "b")
        .compile()
    )
    stream: Any = graph.stream({"said": []}, config(callback, "left"))
    next(stream)
    stream.close()
    assert events(callback)[-1].type == "run.cancelled"


def test_a_server_that_is_away_breaks_no_graph() -> None:
    client = Client("http://127.0.0.1:9", on_error="ignore")
    graph = StateGraph(State).add_node("n", lambda state: {"said": ["x"]}).add_edge(START, "n").compile()
    assert graph.invoke({"said": []}, config(RunreelCallback(client=client), "away")) == {"said": ["x"]}
    client.close(timeout=0)


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
async def test_what_a_node_calls_with_the_callback_by_hand_is_in_the_node_and_once(
    callback: RunreelCallback, way: str
) -> None:
    model = ScriptedModel(replies=[AIMessage("by hand"), AIMessage("of itself")])

    @tool
    def look(city: str) -> str:
        """Says what a city is like."""
        return city

    def work(state: State) -> State:
        by_hand = (RunnableLambda(lambda said: said) | model).invoke([("user", "hi")], {"callbacks": [callback]})
        look.invoke({"city": "Rome"}, {"callbacks": [callback]})
        return {"said": [str(by_hand.content), str(model.invoke([("user", "hi"), by_hand]).content)]}

    graph = StateGraph(State).add_node("work", work).add_edge(START, "work").compile()
    place = config(callback, f"by-hand-{way}")
    if way == "ainvoke":
        await graph.ainvoke({"said": []}, place)
    elif way == "stream":
        list(graph.stream({"said": []}, place))
    else:
        graph.invoke({"said": []}, place)
    assert bars(callback)[1:] == ["work", "work > message", "work > look", "work > message"]
    messages = [event for event in events(callback) if event.type == "message.completed"]
    assert [event.text for event in messages] == ["by hand", "of itself"]
