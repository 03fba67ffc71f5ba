"""Two people use the same thread id on one server, and neither can tell that there is another."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from graphs import travel_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from conftest import JwtServer
from runreel import ApiError
from runreel.langgraph import RunreelCallback, RunreelSaver

THREAD = "shared-id"


@pytest.fixture
def ada(jwt_server: JwtServer) -> Iterator[RunreelSaver]:
    with RunreelSaver(jwt_server.url, token=jwt_server.token("ada")) as saver:
        yield saver


@pytest.fixture
def bob(jwt_server: JwtServer) -> Iterator[RunreelSaver]:
    with RunreelSaver(jwt_server.url, token=jwt_server.token("bob")) as saver:
        yield saver


def config(thread_id: str = THREAD, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, **more}}


def test_neither_of_two_people_with_one_thread_id_sees_lists_resumes_copies_or_deletes_the_others(
    jwt_server: JwtServer, ada: RunreelSaver, bob: RunreelSaver
) -> None:
    with RunreelCallback(jwt_server.url, token=jwt_server.token("ada"), on_error="raise") as callback:
        recorded = {"callbacks": [callback], "configurable": {"thread_id": THREAD}}
        travel_agent(ada).invoke({"messages": [("user", "Book me a trip")]}, recorded)
        run_id = str(callback.run_id)
    mine = ada.get_tuple(config())
    assert mine is not None
    (waiting,) = travel_agent(ada).get_state(config()).interrupts

    # Nothing of hers is there, by guessed id or by list.
    assert bob.get_tuple(config()) is None
    assert bob.get_tuple(mine.config) is None
    assert list(bob.list(config())) == list(bob.list(None)) == []
    assert list(bob.list(None, filter={"source": "loop"})) == []

    # Nothing of hers goes on for anybody else: to them the checkpoint and the interrupt are not there.
    with RunreelSaver(jwt_server.url, token=jwt_server.token("carol")) as carol:
        state = travel_agent(carol).invoke(Command(resume={waiting.id: "mine"}), mine.config)
    assert "Book me a trip" not in [message.content for message in state["messages"]]
    assert ada.get_tuple(config()) == mine
    with jwt_server.client("bob") as client:
        for refused in (
            lambda: client.resume(run_id, waiting.id, "respond", "mine"),
            lambda: client.get_run(run_id),
            lambda: list(client.events(run_id)),
            lambda: client.threads.get(THREAD),
        ):
            with pytest.raises(ApiError, match="not_found"):
                refused()

    # Nothing of hers is copied, pruned or deleted by him.
    bob.copy_thread(THREAD, "loot")
    assert bob.get_tuple(config("loot")) is None
    bob.prune([THREAD])
    bob.prune([THREAD], strategy="delete")
    bob.delete_for_runs([run_id])
    bob.delete_thread(THREAD)
    assert ada.get_tuple(config()) == mine

    # What he writes under the same ids is his.
    bob.put(config(checkpoint_ns=""), mine.checkpoint, {"source": "input", "step": 99}, {})
    bob.put_writes(mine.config, [("messages", "forged")], "task")
    assert ada.get_tuple(config()) == mine
    his = bob.get_tuple(config())
    assert his is not None
    assert his.metadata["step"] == 99
    assert "messages" not in his.checkpoint["channel_values"]
    bob.delete_thread(THREAD)
    assert ada.get_tuple(config()) == mine

    # And hers goes on.
    state = travel_agent(ada).invoke(Command(resume="gladly"), config())
    assert state["messages"][-1].content == "all booked"


def test_what_is_somebody_elses_and_what_does_not_exist_are_refused_with_the_same_bytes(
    jwt_server: JwtServer, ada: RunreelSaver
) -> None:
    travel_agent(ada).invoke({"messages": [("user", "Book me a trip")]}, config("hers"))
    mine = ada.get_tuple(config("hers"))
    assert mine is not None
    made = mine.config["configurable"]["checkpoint_id"]
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", "/api/threads/{thread}", None),
        ("DELETE", "/api/threads/{thread}", None),
        ("GET", "/api/threads/{thread}/checkpoints", None),
        ("GET", "/api/threads/{thread}/checkpoints/latest", None),
        ("GET", f"/api/threads/{{thread}}/checkpoints/{made}", None),
        ("GET", "/api/threads/{thread}/messages", None),
        ("GET", "/api/threads/{thread}/runs", None),
        ("POST", "/api/threads/{thread}/copy", {"to": "loot"}),
    ]
    bearer = {"authorization": f"Bearer {jwt_server.token('mallory')}"}
    with httpx2.Client(base_url=jwt_server.url, headers=bearer, trust_env=False) as http:
        for method, path, body in requests:
            hers, nobodys = (http.request(method, path.format(thread=thread), json=body) for thread in ("hers", "none"))
            assert (hers.status_code, hers.content) == (nobodys.status_code, nobodys.content), path
            assert hers.status_code == 404 or hers.json() in ({"messages": [], "next_cursor": None},), path
    assert ada.get_tuple(config("hers")) == mine


def test_the_token_of_a_user_that_a_service_passes_on_stays_out_of_checkpoints(
    jwt_server: JwtServer, ada: RunreelSaver
) -> None:
    seen: list[Any] = []

    def tool(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        seen.append(config["configurable"]["user_jwt"])
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(MessagesState)
    graph.add_node("tool", tool)
    graph.add_edge(START, "tool")
    thread, tokens = str(uuid.uuid4()), [jwt_server.token("ada"), jwt_server.token("bob"), "eyJx.eyJy.z"]
    for token in tokens:
        passed_on = {"thread_id": thread, "user_jwt": token, "header": f"Bearer {token}", "team": "eyJ"}
        graph.compile(checkpointer=ada).invoke({"messages": [HumanMessage("go")]}, {"configurable": passed_on})
    assert seen == tokens
    kept = list(ada.list({"configurable": {"thread_id": thread}}))
    assert len(kept) == 9
    for checkpoint in kept:
        assert checkpoint.metadata["team"] == "eyJ"  # type: ignore[typeddict-item]
        assert not {"user_jwt", "header"} & checkpoint.metadata.keys()
    # What a graph keeps in its state on purpose, the server refuses.
    with pytest.raises(ApiError) as refused:
        graph.compile(checkpointer=ada).invoke(
            {"messages": [HumanMessage(f"my token is {tokens[1]}")]},
            {"configurable": {"thread_id": thread, "user_jwt": ""}},
        )
    assert refused.value.code == "credential_in_body"
