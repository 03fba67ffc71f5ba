"""Runs of Pydantic AI's agents, with its own models for tests, on a live server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelResponse, ModelRetry, RunContext, TextPart, ToolCallPart
from pydantic_ai.exceptions import ModelHTTPError, RunCancelled, UnexpectedModelBehavior
from pydantic_ai.messages import ImageUrl, ModelRequest, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from conftest import JwtServer, Server
from runreel import ApiError, Client, Event
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


@pytest.fixture
def capability(client: Client) -> Iterator[RunreelCapability]:
    with RunreelCapability(client=client, on_error="raise") as capability:
        yield capability


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


async def test_a_model_that_breaks_off_leaves_what_it_wrote_and_a_failed_run(
    capability: RunreelCapability, client: Client
) -> None:
    agent = Agent(scripted(["half a ", "sen", ValueError("line cut")]), name="cut off", capabilities=[capability])
    with pytest.raises(ValueError, match="line cut"):
        await agent.run("go")
    run, events = newest(client, "cut off")
    error = {"type": "ValueError", "message": "line cut"}
    assert told(events)[-2:] == ["message.completed", "run.failed"]
    assert (events[-2].text, events[-2].payload["error"]) == ("half a sen", error)
    assert (run["status"], run["error"]) == ("failed", error)


async def test_a_tool_that_raises_is_failed_and_so_is_the_run(capability: RunreelCapability, client: Client) -> None:
    agent = Agent(scripted([calls("fall", "{}")]), name="clumsy", capabilities=[capability])

    @agent.tool_plain
    def fall() -> str:
        raise ZeroDivisionError("by nought")

    with pytest.raises(ZeroDivisionError):
        await agent.run("go")
    _, events = newest(client, "clumsy")
    error = {"type": "ZeroDivisionError", "message": "by nought"}
    assert [(event.type, event.payload.get("error")) for event in events[-2:]] == [
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
    assert errors["c1"]["type"] == "ValidationError"
    assert errors["c2"]["type"] == "retried"
    assert "unheard_of" in errors["c2"]["message"]
    assert errors["c3"] == {"type": "ModelRetry", "message": "not this one"}


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


async def test_a_model_that_another_answers_for_is_named(capability: RunreelCapability, client: Client) -> None:
    broken = scripted([ModelHTTPError(503, "broken")])
    agent = Agent(FallbackModel(broken, scripted(["here"])), name="replaced", capabilities=[capability])
    result = await agent.run("go")
    _, events = recorded(client, result.run_id)
    (warning,) = (event for event in events if event.type == "log.warn")
    assert "503" in str(warning.payload["reason"])


class Report(BaseModel):
    title: str
    pages: int


class Sealed:
    """Nothing can be learned of it."""

    def __repr__(self) -> str:
        raise RuntimeError("sealed")


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
    assert (run["status"], run["error"]["type"]) == ("failed", "UnexpectedModelBehavior")
