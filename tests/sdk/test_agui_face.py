"""The proxy read through AG-UI itself: the client's own protocol on both sides of the log."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
from ag_ui.core import Event
from endpoints import WORDS, Endpoints
from pydantic import TypeAdapter

from conftest import Server

PLACES = 20
EVENTS: TypeAdapter[Any] = TypeAdapter(Event)


def given(thread: str, run: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {"threadId": thread, "runId": run, "messages": list(messages), "tools": [], "context": []}
    return {**whole, "state": {}, "forwardedProps": {}, "protocolVersion": "1.0", **more}


class Client:
    """A client of AG-UI: it keeps the messages, and comes back where it was cut off."""

    def __init__(self, server: Server, run: str) -> None:
        self._server = server
        self._run = run
        self._cursor: str | None = None
        self.messages: dict[str, dict[str, Any]] = {}
        self.last: dict[str, Any] = {}
        self.kinds: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.last.get("type") in ("RUN_FINISHED", "RUN_ERROR")

    def post(self, agent: str, body: dict[str, Any], events: int = 0) -> None:
        """Begins or continues a run, and reads this many events, or all."""
        self._read("POST", f"/api/agui/agents/{agent}", events, {}, body)

    def rejoin(self, events: int = 0) -> None:
        """Continues where it was cut off, or joins if it has nothing."""
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        self._read("GET", f"/api/agui/runs/{self._run}", events, headers, None)

    def _read(self, method: str, path: str, events: int, headers: dict[str, str], body: Any) -> None:
        address = self._server.url + path
        with (
            httpx.Client(trust_env=False, timeout=30) as http,
            http.stream(method, address, headers=headers, json=body) as answer,
        ):
            if answer.status_code == 204:
                self.last = {"type": "RUN_FINISHED"}
                return
            assert answer.status_code == 200, answer.read()
            # An event, and its id, count at the empty line that ends its frame (WHATWG HTML, 9.2.6).
            frame: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    frame[name] = value
                    continue
                self._cursor = frame.get("id", self._cursor)
                data, frame = frame.get("data"), {}
                if data is not None:
                    EVENTS.validate_json(data)
                    self._take(json.loads(data))
                    events -= 1
                    if events == 0 or self.is_over:
                        return

    def _take(self, event: dict[str, Any]) -> None:
        self.last = event
        self.kinds.append(event["type"])
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self.messages.setdefault(event["messageId"], {"role": event.get("role", "assistant"), "content": ""})
            case "TEXT_MESSAGE_CONTENT":
                self.messages[event["messageId"]]["content"] += event["delta"]
            case "TOOL_CALL_RESULT":
                self.messages[event["messageId"]] = {"role": "tool", "content": event["content"]}
            case "CUSTOM" if event["name"] == "agui.failed":
                # What was cut is said again, under another id.
                self.messages.pop(event["value"]["message_id"], None)
            case "MESSAGES_SNAPSHOT":
                self.messages = {
                    message["id"]: {"role": message["role"], "content": message.get("content", "")}
                    for message in event["messages"]
                }

    def said(self) -> list[tuple[str, str]]:
        """The final messages but the user's, which the client has itself."""
        messages = [(message["role"], message["content"]) for message in self.messages.values()]
        return [message for message in messages if message[0] != "user" and message[1]]


FINAL = [("assistant", "I will look"), ("tool", "nothing there"), ("assistant", "".join(WORDS))]


def test_clients_that_are_killed_at_twenty_places_rejoin_to_the_same_final_messages(proxy: Server) -> None:
    user = {"id": "u1", "role": "user", "content": "go"}
    first = Client(proxy, "killed-1")
    first.post("slow", given("killed", "killed-1", user), 3)
    clients = [Client(proxy, "killed-1") for _ in range(PLACES)]
    for place, client in enumerate(clients):
        # Half of them join in the middle by a GET, half by the same POST as the first one.
        if place % 2:
            client.rejoin(1 + place * 3)
        else:
            client.post("slow", given("killed", "killed-1", user), 1 + place * 3)
    for place, client in enumerate([first, *clients]):
        while not client.is_over:
            client.rejoin(1 + place * 2)
        assert client.said() == FINAL, f"the client of place {place}"


def test_a_client_of_a_killed_server_has_the_final_messages_of_one_that_comes_later(
    proxy: Server, endpoints: Endpoints
) -> None:
    endpoints.gate.clear()
    endpoints.at_gate.clear()
    client = Client(proxy, "restarted-1")
    user = {"id": "u1", "role": "user", "content": "go"}
    client.post("slow", given("restarted", "restarted-1", user), 8)
    assert endpoints.at_gate.wait(60)
    proxy.kill()
    endpoints.gate.set()
    proxy.start()
    deadline = time.monotonic() + 60
    while not client.is_over:
        assert time.monotonic() < deadline, client.kinds
        client.rejoin(5)
    late = Client(proxy, "restarted-1")
    late.rejoin()
    assert late.said() == FINAL
    assert client.said() == FINAL, "the message that was cut is named, so that it can be dropped"
    assert client.kinds.count("RUN_STARTED") == 1


def test_an_approval_and_a_tool_of_the_front_end_go_through_the_log(proxy: Server, endpoints: Endpoints) -> None:
    endpoints.deleted.clear()
    user = {"id": "u1", "role": "user", "content": "delete a"}
    client = Client(proxy, "approve-1")
    client.post("approval", given("approve", "approve-1", user))
    [interrupt] = client.last["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["toolCallId"]) == ("int-delete-1", "delete-1")
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    client.post("approval", given("approve", "approve-2", user, resume=[answer]))
    assert client.last["type"] == "RUN_FINISHED"
    assert endpoints.deleted == ["a"]
    assert client.said()[-1] == ("assistant", "The tool said: deleted a")
    paint = {"name": "paint", "description": "paints the page", "parameters": {"type": "object"}}
    user = {"id": "u1", "role": "user", "content": "paint it"}
    client = Client(proxy, "paint-1")
    client.post("front", given("paint", "paint-1", user, tools=[paint]))
    assert client.last["outcome"]["pendingToolCallIds"] == ["paint-1"]
    [message] = [ident for ident, said in client.messages.items() if said["content"] == "Watch: "]
    function = {"name": "paint", "arguments": '{"color":"red"}'}
    call = {"id": "paint-1", "type": "function", "function": function}
    said = {"id": message, "role": "assistant", "content": "Watch: ", "toolCalls": [call]}
    result = {"id": "r1", "role": "tool", "toolCallId": "paint-1", "content": "red now"}
    client = Client(proxy, "paint-2")
    client.post("front", given("paint", "paint-2", user, said, result, tools=[paint]))
    assert client.last["type"] == "RUN_FINISHED"
    assert client.said()[-1] == ("assistant", "It is red now")
