"""Agents of Pydantic AI whose models need no network, and what was recorded of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from runreel import Client, Event
from runreel.pydantic_ai import RunreelCapability

Reply = str | BaseException | DeltaThinkingPart | DeltaToolCall


def scripted(*replies: list[Reply]) -> FunctionModel:
    """A model that streams one reply after the other; what is an exception is raised."""
    left = iter(replies)

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        for index, piece in enumerate(next(left)):
            if isinstance(piece, BaseException):
                raise piece
            # A part of its own for each call; what is thought is the first part.
            if isinstance(piece, DeltaThinkingPart):
                yield {0: piece}
            else:
                yield {100 + index: piece} if isinstance(piece, DeltaToolCall) else piece

    return FunctionModel(stream_function=stream)


def calls(name: str, args: str = "{}", call_id: str = "c1") -> DeltaToolCall:
    return DeltaToolCall(name=name, json_args=args, tool_call_id=call_id)


def recorded(client: Client, run_id: str | None) -> tuple[Any, list[Event]]:
    client.flush()
    return client.get_run(str(run_id)), list(client.events(str(run_id)))


def newest(client: Client, title: str) -> tuple[Any, list[Event]]:
    client.flush()
    return recorded(client, next(client.list_runs(q=title))["run_id"])


def told(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def weather_agent(capability: RunreelCapability, model: Any, **settings: Any) -> Agent[None, str]:
    agent = Agent(model, name="forecaster", capabilities=[capability], **settings)

    @agent.tool_plain
    def weather(city: str) -> dict[str, object]:
        """Says what the weather is like."""
        return {"city": city, "sunny": True}

    return agent


def forecast() -> FunctionModel:
    return scripted(
        [DeltaThinkingPart(content="I look "), DeltaThinkingPart(content="it up"), calls("weather", '{"city":"Rome"}')],
        ["It is ", "sunny"],
    )
