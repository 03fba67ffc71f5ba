"""Threads of LangGraph as saved sessions: kept in full, restored, and gone on with by a real graph."""

from __future__ import annotations

import uuid
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from conftest import Server
from runreel.langgraph import RunreelSaver


def counting(saver: RunreelSaver) -> Any:
    """A graph whose answer tells how many messages it knows, and the first of them."""

    def answer(state: MessagesState) -> dict[str, Any]:
        known = state["messages"]
        return {"messages": [AIMessage(f"{len(known)} messages since {known[0].text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def on(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def call(server: Server, method: str, path: str, **body: Any) -> Any:
    with server.client() as client:
        return client._transport.request(method, f"/api/saved-sessions{path}", json=body or None)


def texts(state: Any) -> list[str]:
    return [str(message.text) for message in state["messages"]]


def test_a_graph_goes_on_from_a_thread_that_was_saved_in_full_and_restored(server: Server, saver: RunreelSaver) -> None:
    thread, name = f"lg-{uuid.uuid4()}", f"trip-{uuid.uuid4()}"
    graph = counting(saver)
    graph.invoke({"messages": [HumanMessage("plan a trip", id="first")]}, on(thread))
    saved = call(server, "POST", "", name=name, thread_id=thread)
    assert (saved["fallback"], saved["message_count"], saved["first_message"]) == (False, 2, "plan a trip")
    again = f"{thread}-again"
    call(server, "POST", f"/{name}/restore", thread_id=again)
    before, after = graph.get_state(on(thread)), graph.get_state(on(again))
    assert after.config["configurable"]["checkpoint_id"] == before.config["configurable"]["checkpoint_id"]
    assert after.next == before.next == ()
    state = graph.invoke({"messages": [HumanMessage("and back")]}, on(again))
    assert texts(state) == [
        "plan a trip",
        "1 messages since plan a trip",
        "and back",
        "3 messages since plan a trip",
    ]
    assert [message.type for message in state["messages"]] == ["human", "ai", "human", "ai"]
    assert len(texts(graph.invoke({"messages": [HumanMessage("thanks")]}, on(again)))) == 6


def test_a_graph_goes_on_from_a_session_that_was_written_by_hand(server: Server, saver: RunreelSaver) -> None:
    name = f"by-hand-{uuid.uuid4()}"
    tool = {"id": "c1", "name": "search", "args": {"q": "Rome"}}
    messages = [
        {"role": "user", "content": "where to?"},
        {"role": "assistant", "content": "", "tool_calls": [tool]},
        {"role": "tool", "content": "Rome is warm", "tool_call_id": "c1"},
    ]
    call(server, "PUT", f"/{name}", thread={"messages": messages})
    thread = call(server, "POST", f"/{name}/restore")["thread_id"]
    state = counting(saver).invoke({"messages": [HumanMessage("and back?")]}, on(thread))
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "human", "ai"]
    assert state["messages"][1].tool_calls[0]["args"] == {"q": "Rome"}
    assert state["messages"][4].content.startswith("4 messages since where to?")
