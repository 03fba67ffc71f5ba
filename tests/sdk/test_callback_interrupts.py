"""Graphs that ask a person, as RunreelCallback records them, on a live server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from graphs import ScriptedModel, travel_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from recorded import ASK, State, bars, config, events

from runreel import Client
from runreel.langgraph import RunreelCallback, RunreelSaver


def test_an_answer_the_program_gives_itself_is_in_the_log_with_its_value(
    callback: RunreelCallback, saver: RunreelSaver
) -> None:
    graph = travel_agent(saver)
    graph.invoke(ASK, config(callback, "local"))
    graph.invoke(Command(resume={"yes": [1, 2]}), config(callback, "local"))
    (resolved,) = (event for event in events(callback) if event.type == "interrupt.resolved")
    assert (resolved.payload["decision"], resolved.payload["value"]) == ("respond", {"yes": [1, 2]})


def test_an_answer_by_the_route_is_found_and_not_given_again(
    callback: RunreelCallback, saver: RunreelSaver, client: Client
) -> None:
    graph = travel_agent(saver)
    graph.invoke(ASK, config(callback, "by-route"))
    run_id = str(callback.run_id)
    (asked,) = client.events(run_id, types="interrupt.requested")
    client.resume(run_id, str(asked.span_id), "approve")
    answers = callback.wait_for_answers(timeout=20)
    assert callback.wait_for_answer(timeout=20).approved
    assert answers.command() == Command(resume={asked.span_id: True})
    state = graph.invoke(answers.command(), config(callback, "by-route"))
    assert state["messages"][-2].content == "booked Rome: True"
    assert Counter(event.type for event in events(callback))["interrupt.resolved"] == 1
    assert client.get_run(run_id)["status"] == "completed"


def test_waiting_for_an_answer_that_does_not_come_ends_in_time(callback: RunreelCallback, saver: RunreelSaver) -> None:
    travel_agent(saver).invoke(ASK, config(callback, "patience"))
    with pytest.raises(TimeoutError):
        callback.wait_for_answers(timeout=0.2)


def test_questions_of_parallel_nodes_are_asked_at_once_and_answered_one_by_one(
    callback: RunreelCallback, saver: RunreelSaver, client: Client
) -> None:
    def ask(name: str) -> Any:
        return lambda state: {"said": [f"{name}: {interrupt(f'{name}?')}"]}

    graph = StateGraph(State)
    for name in ("left", "right"):
        graph = graph.add_node(name, ask(name)).add_edge(START, name)
    compiled = graph.compile(checkpointer=saver, name="parallel")
    compiled.invoke({"said": []}, config(callback, "parallel"))
    run_id = str(callback.run_id)
    asked = {
        event.payload["prompt"]: str(event.span_id) for event in client.events(run_id, types="interrupt.requested")
    }
    assert set(asked) == {"left?", "right?"}
    for prompt, interrupt_id in asked.items():
        client.resume(run_id, interrupt_id, "respond", f"to {prompt}")
    state = compiled.invoke(callback.wait_for_answers(timeout=20).command(), config(callback, "parallel"))
    assert sorted(state["said"]) == ["left: to left?", "right: to right?"]
    assert Counter(bars(callback)) == {"parallel": 1, "left": 1, "right": 1}
    assert client.get_run(run_id)["status"] == "completed"


def test_a_node_that_asks_twice_asks_under_two_ids_and_is_one_step(
    callback: RunreelCallback, saver: RunreelSaver
) -> None:
    def twice(state: State) -> State:
        return {"said": [interrupt("first?"), interrupt("second?")]}

    graph = StateGraph(State).add_node("twice", twice).add_edge(START, "twice").compile(checkpointer=saver)
    settings = config(callback, "twice")
    inputs: list[Any] = [{"said": []}, Command(resume="one"), Command(resume="two")]
    for given in inputs:
        state = graph.invoke(given, settings)
    assert state["said"] == ["one", "two"]
    resolved = [event.payload["value"] for event in events(callback) if event.type == "interrupt.resolved"]
    assert resolved == ["one", "two"]
    assert Counter(bars(callback)) == {"LangGraph": 1, "twice": 1}
    assert events(callback)[-1].type == "run.completed"


def test_a_breakpoint_is_an_approval_and_none_goes_on(callback: RunreelCallback, saver: RunreelSaver) -> None:
    graph = (
        StateGraph(State)
        .add_node("act", lambda state: {"said": ["acted"]})
        .add_edge(START, "act")
        .compile(checkpointer=saver, interrupt_before=["act"])
    )
    settings = config(callback, "breakpoint")
    graph.invoke({"said": []}, settings)
    run_id = callback.run_id
    graph.invoke(None, settings)
    assert callback.run_id == run_id
    assert [event.type for event in events(callback)][2:] == [
        "interrupt.requested",
        "run.interrupted",
        "interrupt.resolved",
        "run.resumed",
        "step.started",
        "step.completed",
        "run.completed",
    ]


def test_new_input_instead_of_an_answer_is_a_new_run(callback: RunreelCallback, saver: RunreelSaver) -> None:
    graph = travel_agent(saver)
    graph.invoke(ASK, config(callback, "change-of-mind"))
    first = str(callback.run_id)
    StateGraph(State).add_node("n", lambda state: {}).add_edge(START, "n").compile().invoke(
        {"said": []}, config(callback, "change-of-mind")
    )
    assert callback.run_id != first
    assert callback.client.get_run(first)["status"] == "interrupted"
    assert events(callback)[-1].type == "run.completed"


def test_the_middleware_that_asks_before_tools_gets_the_decision_it_wants(
    callback: RunreelCallback, saver: RunreelSaver, client: Client
) -> None:
    @tool
    def send(to: str) -> str:
        """Sends a letter."""
        return f"sent to {to}"

    call = {"id": "call-1", "name": "send", "args": {"to": "Ada"}}
    model = ScriptedModel(replies=[AIMessage("sending", tool_calls=[call]), AIMessage("done")])
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"send": True})]
    graph: Any = create_agent(model, [send], middleware=middleware, checkpointer=saver)
    graph.invoke({"messages": [("user", "write to Ada")]}, config(callback, "middleware"))
    run_id = str(callback.run_id)
    (asked,) = client.events(run_id, types="interrupt.requested")
    assert asked.payload["kind"] == "approval"
    client.resume(run_id, str(asked.span_id), "approve")
    state = graph.invoke(callback.wait_for_answers(timeout=20).command(), config(callback, "middleware"))
    assert [message.content for message in state["messages"][-2:]] == ["sent to Ada", "done"]
