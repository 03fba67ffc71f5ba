"""Agents of pydantic-ai behind the proxy: their readers leave and come back, and so does the server."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from endpoints import WORDS, Endpoints

from conftest import Server

PLACES = 20


class Api:
    """The server's API, as any program has it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        with httpx.Client(base_url=self._server.url, trust_env=False, timeout=30) as http:
            answer = http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def ask(self, agent: str, given: Any, thread: str) -> str:
        body = {"agent": agent, "input": given, "thread_id": thread, "start": False}
        run: str = self.call("POST", "/api/runs", body)["run_id"]
        return run

    def until(self, run: str, status: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while True:
            now: dict[str, Any] = self.call("GET", f"/api/runs/{run}")
            if now["status"] == status:
                return now
            assert now["ended_at"] is None, now
            assert time.monotonic() < deadline, now
            time.sleep(0.02)

    def events(self, run: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.call("GET", f"/api/runs/{run}/events?limit=1000")["events"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        return events


class Reader:
    """A reader of a run's stream who is cut off at will and resumes at its cursor."""

    def __init__(self, server: Server, run: str) -> None:
        self._server = server
        self._run = run
        self._cursor: str | None = None
        self.events: list[dict[str, Any]] = []
        self.has_ended = False

    def read(self, frames: int) -> None:
        """Reads this many frames, deltas too, and closes the connection in the middle of the next one."""
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        address = f"{self._server.url}/api/stream/runs/{self._run}"
        with httpx.Client(trust_env=False, timeout=30) as http, http.stream("GET", address, headers=headers) as answer:
            if answer.status_code == 204:
                self.has_ended = True
                return
            assert answer.status_code == 200
            kind, data, ident = "", "", None
            for line in answer.iter_lines():
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data = value
                elif name == "id":
                    ident = value
                elif not line and data:
                    self._take(kind, json.loads(data), ident)
                    kind, data, ident = "", "", None
                    frames -= 1
                    if frames == 0 or self.has_ended:
                        return

    def _take(self, kind: str, data: dict[str, Any], ident: str | None) -> None:
        self._cursor = ident or self._cursor
        self.has_ended = kind == "stream.end"
        if not kind.startswith("stream.") and data.get("seq") is not None:
            self.events.append(data)


def messages(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The final messages: span, role and text."""
    found = [event for event in events if event["type"] == "message.completed"]
    return [(event["span_id"], event["payload"]["role"], event["payload"]["content"][0]["text"]) for event in found]


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [text for _, role, text in messages(events) if role == "assistant" and text]


def test_an_agent_of_pydantic_ai_is_a_run_like_any_other(proxy: Server, endpoints: Endpoints) -> None:
    api = Api(proxy)
    run = api.ask("test", "find it", "of-test")
    assert api.until(run, "completed")["output"] == {"response": "all of it was found"}
    events = api.events(run)
    kinds = [event["type"] for event in events]
    assert kinds.count("tool.started") == kinds.count("tool.completed") == 1
    call = next(event for event in events if event["type"] == "tool.completed")
    assert (call["payload"]["name"], call["payload"]["result"]) == ("search", "3 hits for a")
    assert texts(events) == ["all of it was found"]
    # The next run of the thread has the whole conversation, which pydantic-ai reads.
    run = api.ask("test", "and again", "of-test")
    api.until(run, "completed")
    roles = [message["role"] for message in endpoints.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert texts(api.events(run)) == ["all of it was found"]


def test_readers_that_are_cut_at_twenty_places_have_the_same_final_messages(proxy: Server) -> None:
    api = Api(proxy)
    run = api.ask("slow", "go", "of-slow")
    readers = [Reader(proxy, run) for _ in range(PLACES)]
    # Each is cut after its own number of frames, while the run is at work, and again and again until its end.
    for place, reader in enumerate(readers):
        reader.read(1 + place * 3)
    api.until(run, "completed")
    log = api.events(run)
    assert texts(log) == ["I will look", "".join(WORDS)]
    for place, reader in enumerate(readers):
        while not reader.has_ended:
            reader.read(1 + place)
        assert reader.events == log, f"the reader of place {place}"
        assert messages(reader.events) == messages(log)


def test_a_server_that_is_killed_takes_the_run_up_with_what_was_complete(proxy: Server, endpoints: Endpoints) -> None:
    api = Api(proxy)
    endpoints.gate.clear()
    endpoints.at_gate.clear()
    run = api.ask("slow", "go", "of-kill")
    reader = Reader(proxy, run)
    assert endpoints.at_gate.wait(60)
    reader.read(7)  # All events so far: more would be words, for which the endpoint waits.
    proxy.kill()
    asked = len(endpoints.requests)
    endpoints.gate.set()
    proxy.start()
    api.until(run, "completed")
    log = api.events(run)
    assert texts(log) == ["I will look", "".join(WORDS)], "the same final messages as without the kill"
    calls = [event["type"] for event in log if event["type"].startswith("tool.")]
    assert calls == ["tool.started", "tool.completed"]
    lost = next(event for event in log if event["type"] == "log.warn")
    assert "the process that read it has ended" in lost["payload"]["message"]
    assert lost["span_id"] == next(event["span_id"] for event in log if event["type"] == "agui.failed")
    again = endpoints.requests[asked]
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "tool"]
    assert again["runId"] == f"{run}~2"
    while not reader.has_ended:
        reader.read(7)
    assert reader.events == log, "the reader that came back"


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_people_approve_the_calls_of_an_agent_of_pydantic_ai(
    proxy: Server, endpoints: Endpoints, decision: str
) -> None:
    api = Api(proxy)
    endpoints.deleted.clear()
    run = api.ask("approval", "delete a", f"of-{decision}")
    api.until(run, "interrupted")
    asked = next(event for event in api.events(run) if event["type"] == "interrupt.requested")
    assert (asked["payload"]["tool"], asked["payload"]["args"]) == ("delete", {"name": "a"})
    value = "keep it" if decision == "reject" else {"editedArgs": {"name": "b"}}
    api.call(
        "POST", f"/api/runs/{run}/resume", {"interrupt_id": asked["span_id"], "decision": decision, "value": value}
    )
    output = api.until(run, "completed")["output"]
    said = "keep it" if decision == "reject" else "deleted b"
    assert output["response"] == f"The tool said: {said}"
    assert endpoints.deleted == ([] if decision == "reject" else ["b"])
    kinds = [event["type"] for event in api.events(run)]
    assert (kinds.count("tool.started"), kinds.count("tool.completed"), kinds.count("log.warn")) == (1, 1, 0)


def test_an_endpoint_of_the_protocols_own_types_asks_and_goes_on(proxy: Server, endpoints: Endpoints) -> None:
    api = Api(proxy)
    run = api.ask("form", "hello", "of-form")
    api.until(run, "interrupted")
    api.call("POST", f"/api/runs/{run}/resume", {"interrupt_id": "who", "decision": "respond", "value": "Ann"})
    assert api.until(run, "completed")["output"] == {"response": "Hello Ann"}
    assert endpoints.requests[-1]["resume"] == [{"interruptId": "who", "status": "resolved", "payload": "Ann"}]


def test_a_tool_of_the_front_end_is_called_there_and_its_result_goes_back(proxy: Server) -> None:
    api = Api(proxy)
    tools = [{"name": "paint", "description": "paints the page", "parameters": {"type": "object"}}]
    user = {"id": "u1", "role": "user", "content": "paint it"}
    given = {"threadId": "of-front", "runId": "front-1", "messages": [user], "tools": tools, "context": []}
    given |= {"state": {}, "forwardedProps": {}}
    run = api.ask("front", given, "of-front")
    output = api.until(run, "completed")["output"]
    assert output == {
        "response": "Watch: ",
        "tool_calls": [{"id": "paint-1", "name": "paint", "args": {"color": "red"}}],
    }
    events = api.events(run)
    call = next(event for event in events if event["type"] == "tool.started")
    assert call["payload"]["client"] is True
    function = {"name": "paint", "arguments": json.dumps(call["payload"]["args"])}
    answer = {"id": call["parent_span_id"], "role": "assistant", "content": "Watch: "}
    answer["toolCalls"] = [{"id": "paint-1", "type": "function", "function": function}]
    result = {"id": "r1", "role": "tool", "toolCallId": "paint-1", "content": "red now"}
    run = api.ask("front", given | {"runId": "front-2", "messages": [user, answer, result]}, "of-front")
    assert api.until(run, "completed")["output"] == {"response": "It is red now"}
