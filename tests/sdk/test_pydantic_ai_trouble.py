"""Runs of Pydantic AI's agents where something goes wrong: models, tools, tasks, servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_agents import calls, forecast, newest, recorded, scripted, told, weather_agent
from pydantic_ai import Agent, ModelResponse, ModelRetry, RunContext, ToolCallPart
from pydantic_ai.exceptions import ModelHTTPError, RunCancelled, UnexpectedModelBehavior
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from reading import said

from conftest import Server
from runreel import Client
from runreel.pydantic_ai import RunreelCapability


async def test_a_model_that_breaks_off_leaves_what_it_wrote_and_a_failed_run(
    capability: RunreelCapability, client: Client
) -> None:
    agent = Agent(scripted(["half a ", "sen", ValueError("line cut")]), name="cut off", capabilities=[capability])
    with pytest.raises(ValueError, match="line cut"):
        await agent.run("go")
    run, events = newest(client, "cut off")

    assert told(events)[-2:] == ["message.completed", "run.failed"]
    assert (events[-2].text, run["status"], said(run["error"])) == ("half a sen", "failed", "ValueError: line cut")


async def test_a_tool_that_raises_is_failed_and_so_is_the_run(capability: RunreelCapability, client: Client) -> None:
    agent = Agent(scripted([calls("fall", "{}")]), name="clumsy", capabilities=[capability])

    @agent.tool_plain
    def fall() -> str:
        raise ZeroDivisionError("by nought")

    with pytest.raises(ZeroDivisionError):
        await agent.run("go")
    _, events = newest(client, "clumsy")
    error = "ZeroDivisionError: by nought"
    assert [(event.type, said(event.payload["error"])) for event in events[-2:]] == [
        ("tool.failed", error),
        ("run.failed", error),
    ]


async def test_each_try_of_a_call_is_a_tool_of_its_own_whatever_was_wrong_with_it(
    capability: RunreelCapability, client: Client
) -> None:
    model = scripted(
        [calls("count", '{"n":"many"}', "c1"), calls("unheard_of", "{}", "c2")],
        [calls("count", '{"n":13}', "c3")],
        [calls("count", '{"n":2}', "c4")],
        ["done"],
    )
    agent = Agent(model, name="trying", capabilities=[capability], retries=5)

    @agent.tool_plain
    def count(n: int) -> int:
        if n == 13:
            raise ModelRetry("not this one")
        return n

    result = await agent.run("go")
    _, events = recorded(client, result.run_id)
    ends = {event.span_id: event for event in events if event.type in ("tool.completed", "tool.failed")}
    assert Counter(event.span_id for event in events if event.type == "tool.started") == Counter(ends.keys())
    assert {call: event.type for call, event in ends.items()} == {
        "c1": "tool.failed",
        "c2": "tool.failed",
        "c3": "tool.failed",
        "c4": "tool.completed",
    }
    errors: dict[str, Any] = {str(call): event.payload.get("error") for call, event in ends.items()}
    assert errors["c1"]["type"] == "pydantic_core._pydantic_core.ValidationError"
    assert errors["c2"]["type"] == "retried"
    assert "unheard_of" in errors["c2"]["message"]
    assert said(errors["c3"]) == "pydantic_ai.exceptions.ModelRetry: not this one"


async def test_an_answer_that_is_refused_is_asked_for_again(capability: RunreelCapability, client: Client) -> None:
    agent = Agent(scripted(["one"], ["two"]), name="strict", capabilities=[capability])

    @agent.output_validator
    def wants_two(output: str) -> str:
        if output != "two":
            raise ModelRetry("two, please")
        return output

    result = await agent.run("go")
    _, events = recorded(client, result.run_id)
    assert [event.type for event in events[3:]] == [
        "message.completed",
        "log.warn",
        "message.completed",
        "run.completed",
    ]
    assert events[4].payload["reason"] == "two, please"


async def test_a_cancelled_task_a_run_that_cancels_itself_and_a_stream_that_is_left_are_cancelled_runs(
    capability: RunreelCapability, client: Client
) -> None:
    working = asyncio.Event()
    agent = Agent(scripted([calls("wait")], [calls("wait")]), name="cancelled", capabilities=[capability])

    @agent.tool
    async def wait(ctx: RunContext[None]) -> str:
        if ctx.prompt == "yourself":
            ctx.cancel()
        working.set()
        await asyncio.sleep(60)
        return ""

    task = asyncio.create_task(agent.run("go"))
    await working.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run, events = newest(client, "cancelled")
    assert run["status"] == "cancelled"
    assert told(events)[-2:] == ["tool.failed", "run.cancelled"]

    with pytest.raises(RunCancelled):
        await agent.run("yourself")
    run, _ = newest(client, "cancelled")
    assert (run["input"], run["status"]) == ("yourself", "cancelled")

    agent = Agent(scripted(["a ", "b ", "c "]), name="left", capabilities=[capability])
    async with agent.iter("go") as nodes:
        async for _ in nodes:
            break
    assert newest(client, "left")[0]["status"] == "cancelled"


async def test_a_model_that_another_answers_for_is_named(capability: RunreelCapability, client: Client) -> None:
    broken = scripted([ModelHTTPError(503, "broken")])
    agent = Agent(FallbackModel(broken, scripted(["here"])), name="replaced", capabilities=[capability])
    result = await agent.run("go")
    _, events = recorded(client, result.run_id)
    (warning,) = (event for event in events if event.type == "log.warn")
    assert "503" in str(warning.payload["reason"])


async def test_nothing_that_cannot_be_recorded_breaks_a_run(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RunreelCapability):
        @property
        def tags(self) -> Any:
            raise RuntimeError("sealed")

        @tags.setter
        def tags(self, tags: Any) -> None:
            """Forgets them."""

    agent = weather_agent(Broken(client=client), forecast())
    assert (await agent.run("go")).output == "It is sunny"
    assert "not recorded: RuntimeError: sealed" in caplog.text


async def test_a_server_that_is_away_breaks_and_delays_no_agent() -> None:
    capability = RunreelCapability(client=Client("http://127.0.0.1:9", on_error="ignore"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await weather_agent(capability, forecast()).run("go")).output == "It is sunny"
    assert loop.time() - began < 2
    capability.client.close(timeout=0)


async def test_a_server_that_is_killed_in_the_middle_has_the_whole_run_afterwards(restartable: Server) -> None:
    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: calls("weather", '{"city":"Rome"}')}
            return
        yield "It is "
        await asyncio.to_thread(client.flush)
        await asyncio.to_thread(restartable.kill)
        yield "sunny"

    with restartable.client(on_error="raise") as client:
        capability = RunreelCapability(client=client, on_error="raise")
        result = await weather_agent(capability, FunctionModel(stream_function=stream)).run("How is Rome?")
        assert result.output == "It is sunny"
        await asyncio.to_thread(restartable.start)
        run, events = await asyncio.to_thread(recorded, client, result.run_id)
        assert run["status"] == "completed"
        assert told(events) == [
            "run.created",
            "run.started",
            "message.completed",
            "message.completed",
            "tool.started",
            "tool.completed",
            "message.completed",
            "run.completed",
        ]
        assert events[-2].text == "It is sunny"
        assert client.dropped == 0


def test_a_run_that_goes_wrong_in_pydantic_ai_itself_is_failed(capability: RunreelCapability, client: Client) -> None:
    model = FunctionModel(lambda messages, info: ModelResponse([ToolCallPart("nothing", {})]))
    with pytest.raises(UnexpectedModelBehavior):
        Agent(model, name="lost", capabilities=[capability]).run_sync("go")
    run, _ = newest(client, "lost")
    assert (run["status"], run["error"]["type"]) == ("failed", "pydantic_ai.exceptions.UnexpectedModelBehavior")
