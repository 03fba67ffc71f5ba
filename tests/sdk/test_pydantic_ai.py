"""Runs of Pydantic AI's agents, with its own models for tests, on a live server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_agents import calls, forecast, newest, recorded, scripted, told, weather_agent
from pydantic_ai import Agent, ModelResponse, TextPart
from pydantic_ai.messages import ImageUrl, ModelRequest, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, FunctionModel
from pydantic_ai.models.test import TestModel

from conftest import JwtServer
from runreel import ApiError, Client
from runreel.pydantic_ai import RunreelCapability


@pytest.mark.parametrize("way", ["run", "run_sync", "run_stream", "iter", "handler"])
def test_every_way_to_run_an_agent_is_recorded_alike(capability: RunreelCapability, client: Client, way: str) -> None:
    agent = weather_agent(capability, forecast())

    async def handler(ctx: Any, events: Any) -> None:
        async for _ in events:
            pass

    async def called() -> Any:
        if way == "run_stream":
            async with agent.run_stream("How is Rome?") as stream:
                assert await stream.get_output() == "It is sunny"
                return stream
        if way == "iter":
            async with agent.iter("How is Rome?") as nodes:
                async for _ in nodes:
                    pass
                return nodes.result
        return await agent.run("How is Rome?", event_stream_handler=handler if way == "handler" else None)

    result = agent.run_sync("How is Rome?") if way == "run_sync" else asyncio.run(called())
    run, events = recorded(client, result.run_id)
    assert (run["title"], run["agent"], run["status"]) == ("forecaster", "forecaster", "completed")
    assert (run["input"], run["output"]) == ("How is Rome?", "It is sunny")
    assert run["thread_id"] == result.conversation_id
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert told(events) == [
        "run.created",
        "run.started",
        "message.completed",
        "reasoning.completed",
        "message.completed",
        "tool.started",
        "tool.completed",
        "message.completed",
        "run.completed",
    ]
    said = [event for event in events if event.type == "message.completed"]
    assert [(event.payload["role"], event.text) for event in said] == [
        ("user", "How is Rome?"),
        ("assistant", ""),
        ("assistant", "It is sunny"),
    ]
    assert said[1].payload["content"] == [
        {"type": "tool_call", "id": "c1", "name": "weather", "args": {"city": "Rome"}}
    ]
    assert said[2].payload["model"] == "function::stream"
    assert said[2].payload["usage"]["output_tokens"] > 0
    assert events[3].payload["text"] == "I look it up"
    assert (events[5].span_id, events[5].payload) == ("c1", {"name": "weather", "args": {"city": "Rome"}})
    assert events[6].payload["result"] == {"city": "Rome", "sunny": True}


async def test_readers_see_what_is_thought_and_said_while_the_model_writes(
    capability: RunreelCapability, client: Client
) -> None:
    seen: dict[str, str] = {}

    def follow(run_id: str, type: str) -> None:
        client.flush()
        for event in client.stream(run_id):
            if f"{type}.delta" in (event.type, event.payload.get("type")):
                seen[type] = str(event.payload["text"])
                return

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        run_id = str(messages[-1].run_id)
        yield {0: DeltaThinkingPart(content="hm")}
        yield {0: DeltaThinkingPart(content=", so")}
        await asyncio.to_thread(follow, run_id, "reasoning")
        yield "one "
        yield "two "
        await asyncio.to_thread(follow, run_id, "message")
        yield "three"

    agent = Agent(FunctionModel(stream_function=stream), name="live", capabilities=[capability])
    result = await agent.run("go")
    assert "hm, so".startswith(seen["reasoning"])
    assert "one two ".startswith(seen["message"])
    _, events = recorded(client, result.run_id)
    assert told(events)[3:5] == ["reasoning.completed", "message.completed"]
    assert events[4].text == result.output == "one two three"


async def test_an_agent_that_a_tool_calls_is_a_child_run_in_that_tool(
    capability: RunreelCapability, client: Client
) -> None:
    clerk = Agent(scripted(["sunny"], [RuntimeError("asleep")]), name="clerk", capabilities=[capability])
    desk = Agent(
        scripted([calls("ask", call_id="c1")], [calls("ask", call_id="c2")], ["so be it"]),
        name="desk",
        capabilities=[capability],
    )

    @desk.tool_plain
    async def ask() -> str:
        try:
            return (await clerk.run("Rome?")).output
        except RuntimeError as error:
            return f"no answer: {error}"

    result = await desk.run("How is Rome?")
    run, events = recorded(client, result.run_id)
    workers = [event for event in events if event.type.startswith("worker.")]
    assert [(event.type, event.payload["name"]) for event in workers] == [
        ("worker.spawned", "clerk"),
        ("worker.completed", "clerk"),
        ("worker.spawned", "clerk"),
        ("worker.failed", "clerk"),
    ]
    children = [client.get_run(str(event.payload["run_id"])) for event in workers[::2]]
    assert [(child["status"], child["role"], child["parent_run_id"]) for child in children] == [
        ("completed", "worker", run["run_id"]),
        ("failed", "worker", run["run_id"]),
    ]
    spans = {span["span_id"]: span for span in client.timeline(run["run_id"])["spans"]}
    assert spans[children[0]["run_id"]].get("parent_span_id") == "c1"
    # Outside of the tool, the clerk's runs are nobody's children.
    await Agent(scripted(["hello"]), name="clerk alone", capabilities=[capability]).run("hi")
    assert newest(client, "clerk alone")[0]["parent_run_id"] is None


async def test_agents_that_tools_call_at_the_same_time_are_children_of_their_own_calls(
    capability: RunreelCapability, client: Client
) -> None:
    both, arrived = asyncio.Event(), []

    async def answer(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        arrived.append(messages)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        yield "sunny"

    clerk = Agent(FunctionModel(stream_function=answer), name="clerks", capabilities=[capability])
    desk = Agent(
        scripted([calls("ask", '{"city":"Rome"}', "c1"), calls("ask", '{"city":"Bari"}', "c2")], ["so be it"]),
        name="busy desk",
        capabilities=[capability],
    )

    @desk.tool_plain
    async def ask(city: str) -> str:
        return (await clerk.run(city)).output

    result = await desk.run("go")
    run, _ = recorded(client, result.run_id)
    spans = {span["span_id"]: span.get("parent_span_id") for span in client.timeline(run["run_id"])["spans"]}
    children = {str(child["input"]): child["run_id"] for child in client.list_runs(parent_run_id=run["run_id"])}
    assert {city: spans[run_id] for city, run_id in children.items()} == {"Rome": "c1", "Bari": "c2"}


async def test_a_run_id_of_ones_own_finds_the_run(capability: RunreelCapability, client: Client) -> None:
    result = await Agent(scripted(["done"]), name="named", capabilities=[capability]).run("go", run_id="job 7/a")
    run, _ = recorded(client, capability.run_id(result))
    assert (run["external_id"], run["status"]) == (result.run_id, "completed") == ("job 7/a", "completed")
    assert client.run_by_external_id("job 7/a")["run_id"] == run["run_id"]


async def test_two_users_at_once_have_their_runs_with_their_own_tokens(jwt_server: JwtServer) -> None:
    both, arrived = asyncio.Event(), []

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield "I know "
        arrived.append(messages)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        yield str(messages[-1].parts[-1].content)

    own = RunreelCapability("http://127.0.0.1:9", on_error="raise")
    agent = Agent(FunctionModel(stream_function=stream), name="secretary", capabilities=[own])

    async def of(subject: str) -> tuple[str, Client]:
        client = jwt_server.client(subject, on_error="raise")
        result = await agent.run(
            f"the secret of {subject}", capabilities=[RunreelCapability(client=client, on_error="raise")]
        )
        return result.run_id, client

    (adas, ada), (bobs, bob) = await asyncio.gather(of("ada"), of("bob"))
    with own, ada, bob:
        for run_id, client, subject, other in ((adas, ada, "ada", bobs), (bobs, bob, "bob", adas)):
            run, events = recorded(client, run_id)
            assert (run["status"], run["output"]) == ("completed", f"I know the secret of {subject}")
            assert len(events) == 5
            assert [listed["run_id"] for listed in client.list_runs(q="secretary")] == [run_id]
            with pytest.raises(ApiError, match="not_found"):
                client.get_run(other)


async def test_models_that_cannot_stream_are_not_asked_to_and_neither_are_others_without_tokens(
    capability: RunreelCapability, client: Client
) -> None:
    whole = FunctionModel(lambda messages, info: ModelResponse([TextPart("at once")]))
    for model in (whole, FallbackModel(whole, scripted(["never"]))):
        result = await Agent(model, name="whole", capabilities=[capability]).run("go")
        _, events = recorded(client, result.run_id)
        assert [event.text for event in events if event.type == "message.completed"] == ["go", "at once"]

    async def must_not(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        raise AssertionError("asked to stream")
        yield ""

    quiet = RunreelCapability(client=client, on_error="raise", tokens=False)
    agent = Agent(FunctionModel(whole.function, stream_function=must_not), name="quiet", capabilities=[quiet])
    assert (await agent.run("go")).output == "at once"


class Report(BaseModel):
    title: str
    pages: int


async def test_outputs_prompts_and_results_of_any_kind_are_recorded(
    capability: RunreelCapability, client: Client
) -> None:
    agent = Agent(TestModel(), name="typed", output_type=Report, capabilities=[capability])

    @agent.tool_plain
    def look() -> Any:
        return Report(title="found", pages=3)

    result = await agent.run(["What is on", ImageUrl("https://example.com/a.png")])
    run, events = recorded(client, result.run_id)
    assert run["output"] == {"title": "a", "pages": 0}
    assert run["input"] == [
        {"type": "text", "text": "What is on"},
        {"type": "image", "url": "https://example.com/a.png"},
    ]
    (looked,) = (event for event in events if event.type == "tool.completed")
    assert looked.payload["result"] == {"title": "found", "pages": 3}

    # What a chat sends is at the end of the history, and there is no prompt.
    agent = Agent(scripted(["hi"]), name="chat", capabilities=[capability], metadata={"tenant": "acme"})
    result = await agent.run(message_history=[ModelRequest([UserPromptPart("hello")])])
    run, events = recorded(client, result.run_id)
    assert events[2].text == "hello"
    assert run["metadata"] == {"tenant": "acme"}


async def test_calls_that_a_model_gives_the_same_id_are_tools_of_their_own(
    capability: RunreelCapability, client: Client
) -> None:
    model = scripted(
        [calls("weather", '{"city":"Rome"}', "weather:0")],
        [calls("weather", '{"city":"Bari"}', "weather:0"), calls("weather", '{"city":"Pisa"}', "weather:0#2")],
        ["sunny"],
    )
    result = await weather_agent(capability, model).run("go")
    _, events = recorded(client, capability.run_id(result))
    cities = {event.span_id: event.payload["args"]["city"] for event in events if event.type == "tool.started"}
    results = {event.span_id: event.payload["result"]["city"] for event in events if event.type == "tool.completed"}
    assert sorted(cities.values()) == ["Bari", "Pisa", "Rome"]
    assert results == cities
    assert (cities["weather:0"], cities["weather:0#2"]) == ("Rome", "Bari")
