"""The promise as a whole: an agent stops for a person, everything is killed, and it goes on from where it was."""

from __future__ import annotations

from collections import Counter

from graphs import travel_agent

from conftest import Server
from runreel import Client
from runreel.langgraph import RunreelCallback, RunreelSaver

THREAD = "trip-1"


def begin(server: Server) -> str:
    """The first process: it asks, and is gone."""
    with RunreelSaver(server.url) as saver, RunreelCallback(server.url, on_error="raise") as callback:
        graph = travel_agent(saver)
        config = {"callbacks": [callback], "configurable": {"thread_id": THREAD}}
        state = graph.invoke({"messages": [("user", "Book me a trip")]}, config)
        assert [interrupt.value["prompt"] for interrupt in state["__interrupt__"]] == ["Book Rome?"]
        assert callback.run_id is not None
        return callback.run_id


def go_on(server: Server, run_id: str) -> str:
    """A later process, of which nothing is known but the thread and the run."""
    with RunreelSaver(server.url) as saver, RunreelCallback(server.url, run_id=run_id, on_error="raise") as callback:
        graph = travel_agent(saver)
        answers = callback.wait_for_answers(timeout=20)
        config = {"callbacks": [callback], "configurable": {"thread_id": THREAD}}
        state = graph.invoke(answers.command(), config)
        return str(state["messages"][-1].content)


def test_an_agent_that_waits_for_a_person_outlives_a_killed_server_and_its_own_process(restartable: Server) -> None:
    run_id = begin(restartable)
    restartable.kill()
    restartable.start()

    with restartable.client(on_error="raise") as client:
        asked = next(iter(client.events(run_id, types="interrupt.requested")))
        assert client.get_run(run_id)["status"] == "interrupted"
        client.resume(run_id, str(asked.span_id), "respond", "gladly")
        restartable.kill()
        restartable.start()

        assert go_on(restartable, run_id) == "all booked"
        shows_everything_once(client, run_id)
        resumed = next(iter(client.events(run_id, types="run.resumed")))
        assert resumed.payload["checkpoint_id"] == asked.payload["checkpoint_id"]
        with RunreelSaver(restartable.url) as saver:
            waited = saver.get_tuple(
                {"configurable": {"thread_id": THREAD, "checkpoint_id": resumed.payload["checkpoint_id"]}}
            )
        assert waited is not None
        assert waited.checkpoint["channel_values"]["messages"][-1].content == "and book"


def shows_everything_once(client: Client, run_id: str) -> None:
    """Also the node that was interrupted: LangGraph runs it again, and it goes on in the span it had."""
    timeline = client.timeline(run_id)
    spans = [(span["kind"], span["name"], span["status"]) for span in timeline["spans"] if span["kind"] != "message"]
    assert Counter(spans) == {
        ("run", "travel", "completed"): 1,
        ("step", "model", "completed"): 3,
        ("step", "tools", "completed"): 3,
        ("tool", "look_up", "completed"): 2,
        ("tool", "book", "completed"): 1,
    }
    assert len({span["span_id"] for span in timeline["spans"]}) == len(spans) + 4

    events = list(client.events(run_id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ends = Counter((event.type, event.span_id) for event in events if event.span_id)
    assert set(ends.values()) == {1}
    results = {event.span_id: event.payload["result"] for event in events if event.type == "tool.completed"}
    assert results == {"call-1": "Rome is fine", "call-2": "Bari is fine", "call-3": "booked Rome: gladly"}
    assert [message["text"] for message in client.threads.messages(THREAD)] == [
        "Book me a trip",
        "I look",
        "and book",
        "all booked",
    ]
    statuses = [event.type for event in events if event.type.startswith(("run.", "interrupt."))]
    assert statuses == [
        "run.created",
        "run.started",
        "interrupt.requested",
        "run.interrupted",
        "interrupt.resolved",
        "run.resumed",
        "run.completed",
    ]
    assert timeline["summary"]["usage"]["total_tokens"] == 30
