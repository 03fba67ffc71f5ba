"""Threads of LangGraph as saved sessions: kept in full, restored, and gone on with by a real graph."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from typing_extensions import TypedDict

from conftest import Server, serving
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


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    """Another server, with a database and a folder of its own."""
    yield from serving()


def joining(saver: RunreelSaver) -> Any:
    """A graph that takes it for granted that the content of each message is a text."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(" ".join(m.content for m in state["messages"]))]}  # type: ignore[misc]

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def carried_over(server: Server, other: Server, thread: str, edit: tuple[str, str] | None = None) -> str:
    """Saves a thread of one server and restores it at the other one; says what the thread is called there."""
    name = f"over-{uuid.uuid4()}"
    assert call(server, "POST", "", name=name, thread_id=thread)["fallback"] is False
    file = call(server, "GET", f"/{name}")
    for message in file["thread"]["messages"]:
        if edit and message["content"] == edit[0]:
            message["content"] = edit[1]
    call(other, "PUT", f"/{name}", **file)
    made = call(other, "POST", f"/{name}/restore")
    assert made["fallback"] is False
    return str(made["thread_id"])


def values_of(server: Server, thread: str) -> Any:
    with server.client() as client:
        kept = client._transport.request("GET", f"/api/threads/{thread}/checkpoints/latest")
    return {member: kept[member] for member in ("checkpoint", "versions", "blobs")}


@pytest.mark.parametrize("edited", [False, True])
def test_contents_that_were_texts_are_texts_at_another_server_also_where_somebody_edited_them(
    server: Server, elsewhere: Server, saver: RunreelSaver, edited: bool
) -> None:
    thread = f"lg-{uuid.uuid4()}"
    joining(saver).invoke({"messages": [HumanMessage("one", id="h"), AIMessage("two")]}, on(thread))
    again = carried_over(server, elsewhere, thread, ("one", "uno") if edited else None)
    assert (values_of(elsewhere, again) == values_of(server, thread)) is not edited
    first = "uno" if edited else "one"
    with RunreelSaver(elsewhere.url) as other:
        graph = joining(other)
        before = graph.get_state(on(again)).values["messages"]
        assert [type(message) for message in before] == [HumanMessage, AIMessage, AIMessage]
        assert (before[0].content, before[0].id) == (first, "h")
        state = graph.invoke({"messages": [HumanMessage("three")]}, on(again))
    assert state["messages"][-1].content == f"{first} two one two three"


class Rich(TypedDict):
    messages: list[AnyMessage]
    at: datetime
    key: uuid.UUID
    price: Decimal
    tags: set[str]
    count: int


@pytest.mark.parametrize("edited", [False, True])
def test_a_state_of_more_than_json_comes_back_whole(
    server: Server, elsewhere: Server, saver: RunreelSaver, edited: bool
) -> None:
    rich: Rich = {
        "messages": [
            HumanMessage("hi", additional_kwargs={"at": datetime(2026, 6, 1, tzinfo=timezone.utc)}),
            AIMessage("ho"),
        ],
        "at": datetime(2026, 6, 1, 10, 30, tzinfo=timezone.utc),
        "key": uuid.uuid4(),
        "price": Decimal("12.340"),
        "tags": {"a", "b"},
        "count": 1,
    }

    def counted(state: Rich) -> dict[str, Any]:
        return {"count": state["count"] + 1}

    def graph_with(saver: RunreelSaver) -> Any:
        graph = StateGraph(Rich)
        graph.add_node("counted", counted)
        graph.add_edge(START, "counted")
        return graph.compile(checkpointer=saver)

    thread = f"lg-{uuid.uuid4()}"
    graph_with(saver).invoke(rich, on(thread))
    again = carried_over(server, elsewhere, thread, ("ho", "hoho") if edited else None)
    expected = {**rich, "count": 2, "messages": [rich["messages"][0], AIMessage("hoho" if edited else "ho")]}
    with RunreelSaver(elsewhere.url) as other:
        graph = graph_with(other)
        assert graph.get_state(on(again)).values == expected
        # No reducer makes messages of anything here: they are some already.
        assert graph.invoke({"count": 6}, on(again)) == {**expected, "count": 7}
