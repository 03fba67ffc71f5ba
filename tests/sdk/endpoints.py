"""Real AG-UI endpoints for the proxy: agents of pydantic-ai under uvicorn, whose models need no network."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from ag_ui.core import (
    Interrupt,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

WORDS = [f"word{n} " for n in range(60)]
Stream = AsyncIterator[str | dict[int, DeltaToolCall]]


def returned(messages: list[ModelMessage], tool: str) -> list[Any]:
    """What calls of a tool have returned so far."""
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart) and part.tool_name == tool]


class Endpoints:
    """Agents at `/test`, `/slow`, `/approval`, `/front` and `/form`, and the requests that came."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        # While it is clear, the agent at /slow stops in the middle of its last message.
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()
        self.deleted: list[str] = []
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        agents = {"test": self._test(), "slow": self._slow(), "approval": self._approval(), "front": self._front()}
        routes = [Route(f"/{name}", self._served(agent), methods=["POST"]) for name, agent in agents.items()]
        routes.append(Route("/form", self._form, methods=["POST"]))
        config = uvicorn.Config(Starlette(routes=routes), log_level="warning", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    def __enter__(self) -> Endpoints:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.should_exit = True
        self._thread.join(20)

    def _served(self, agent: Agent[None, Any]) -> Any:
        async def serve(request: Request) -> Response:
            self.requests.append(json.loads(await request.body()))
            return await AGUIAdapter.dispatch_request(request, agent=agent)

        return serve

    def _test(self) -> Agent[None, str]:
        agent = Agent(TestModel(custom_output_text="all of it was found"))

        @agent.tool_plain
        def search(query: str) -> str:
            return f"3 hits for {query}"

        return agent

    def _slow(self) -> Agent[None, str]:
        async def stream(messages: list[ModelMessage], _: AgentInfo) -> Stream:
            if not returned(messages, "look"):
                for word in ["I ", "will ", "look"]:
                    yield word
                yield {0: DeltaToolCall(name="look", json_args='{"where": "there"}', tool_call_id="call-1")}
                return
            for n, word in enumerate(WORDS):
                if n == len(WORDS) // 2 and not self.gate.is_set():
                    self.at_gate.set()
                    await asyncio.to_thread(self.gate.wait, 60)
                await asyncio.sleep(0.005)
                yield word

        agent = Agent(FunctionModel(stream_function=stream))

        @agent.tool_plain
        def look(where: str) -> str:
            return f"nothing {where}"

        return agent

    def _approval(self) -> Agent[None, str | DeferredToolRequests]:
        async def stream(messages: list[ModelMessage], _: AgentInfo) -> Stream:
            done = returned(messages, "delete")
            if done:
                yield f"The tool said: {done[-1]}"
                return
            yield {0: DeltaToolCall(name="delete", json_args='{"name": "a"}', tool_call_id="delete-1")}

        agent: Agent[None, str | DeferredToolRequests] = Agent(
            FunctionModel(stream_function=stream), output_type=[str, DeferredToolRequests]
        )

        @agent.tool_plain(requires_approval=True)
        def delete(name: str) -> str:
            self.deleted.append(name)
            return f"deleted {name}"

        return agent

    def _front(self) -> Agent[None, str | DeferredToolRequests]:
        async def stream(messages: list[ModelMessage], info: AgentInfo) -> Stream:
            done = returned(messages, "paint")
            if done:
                yield f"It is {done[-1]}"
                return
            assert [tool.name for tool in info.function_tools] == ["paint"]
            yield "Watch: "
            yield {0: DeltaToolCall(name="paint", json_args='{"color": "red"}', tool_call_id="paint-1")}

        return Agent(FunctionModel(stream_function=stream), output_type=[str, DeferredToolRequests])

    async def _form(self, request: Request) -> Response:
        """An endpoint made of the protocol's own types: it asks for a name and greets who answers."""
        body = await request.body()
        self.requests.append(json.loads(body))
        given, encoder = RunAgentInput.model_validate_json(body), EventEncoder()
        started = RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
        events: list[Any] = [started]
        outcome = None
        if given.resume:
            name = given.resume[0].payload if given.resume[0].status == "resolved" else "nobody"
            events += [
                TextMessageStartEvent(message_id="greeting", role="assistant"),
                TextMessageContentEvent(message_id="greeting", delta=f"Hello {name}"),
                TextMessageEndEvent(message_id="greeting"),
            ]
        else:
            question = Interrupt(id="who", reason="input_required", message="Who is there?")
            outcome = RunFinishedInterruptOutcome(interrupts=[question])
        events.append(RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome))

        async def send() -> AsyncIterator[str]:
            for event in events:
                yield encoder.encode(event)

        return StreamingResponse(send(), media_type=encoder.get_content_type())


def config(url: str) -> str:
    """A server's agents, one for each endpoint."""
    names = ["test", "slow", "approval", "front", "form"]
    return "\n".join(f'[agents.{name}]\nkind = "agui"\nurl = "{url}/{name}"\nretries = 8\n' for name in names)
