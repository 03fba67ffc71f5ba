"""Traces of the OpenAI Agents SDK, with a model that needs no network, on a live server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    custom_span,
    function_tool,
    generation_span,
    set_trace_processors,
    trace,
)
from agents.exceptions import MaxTurnsExceeded
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from reading import said

from runreel import Client, Event
from runreel.openai_agents import RunreelTraceProcessor

Output = ResponseFunctionToolCall | ResponseOutputMessage


def says(text: str) -> Output:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[content])


def calls(call_id: str, name: str, **arguments: Any) -> Output:
    return ResponseFunctionToolCall(type="function_call", call_id=call_id, name=name, arguments=json.dumps(arguments))


class ScriptedModel(Model):
    """Gives one reply after the other, and traces it as the SDK's own models do."""

    def __init__(self, *replies: list[Output]) -> None:
        self._replies = iter(replies)

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        with generation_span(input=items, model="scripted") as span:
            reply = next(self._replies)
            span.span_data.output = [item.model_dump() for item in reply]
            span.span_data.usage = {"input_tokens": 5, "output_tokens": 2}
            return ModelResponse(output=list(reply), usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def weather(city: str) -> str:
    """Says what the weather is like."""
    return f"sunny in {city}"


@function_tool(failure_error_function=None)
def break_down() -> str:
    """Fails."""
    raise RuntimeError("broken")


@pytest.fixture
def processor(client: Client) -> Iterator[RunreelTraceProcessor]:
    with RunreelTraceProcessor(client=client) as processor:
        set_trace_processors([processor])
        yield processor
        set_trace_processors([])


def recorded(client: Client, title: str) -> tuple[Any, list[Event]]:
    client.flush()
    (run,) = client.list_runs(q=title)
    return run, list(client.events(run["run_id"]))


def bars(client: Client, run_id: str) -> list[str]:
    """The waterfall as text: what lies in what."""
    spans = client.timeline(run_id)["spans"]
    parents = {span["span_id"]: span.get("parent_span_id") for span in spans}
    names = {span["span_id"]: "message" if span["kind"] == "message" else span["name"] for span in spans}

    def path(span_id: str) -> str:
        parent = parents[span_id]
        return names[span_id] if parent is None else f"{path(parent)} > {names[span_id]}"

    return [path(span["span_id"]) for span in spans]


async def test_agents_turns_tools_messages_and_handoffs_are_a_run(
    client: Client, processor: RunreelTraceProcessor
) -> None:
    clerk = Agent(name="clerk", model=ScriptedModel([calls("c2", "weather", city="Rome")], [says("It is sunny")]))
    clerk.tools = [weather]
    desk = Agent(name="front desk", model=ScriptedModel([calls("c1", "transfer_to_clerk")]), handoffs=[clerk])
    settings = RunConfig(workflow_name="Weather desk", group_id="talk-1", trace_metadata={"tenant": "acme"})
    result = await Runner.run(desk, "How is Rome?", run_config=settings)
    assert result.final_output == "It is sunny"

    run, events = recorded(client, "Weather desk")
    assert (run["status"], run["thread_id"], run["output"]) == ("completed", "talk-1", "It is sunny")
    assert run["agent"] == "front desk"
    assert run["metadata"]["tenant"] == "acme"
    assert run["metadata"]["trace_id"].startswith("trace_")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    paths = bars(client, run["run_id"])
    assert [path for path in paths if not path.endswith("message")] == [
        "Weather desk",
        "front desk",
        "front desk > turn 1",
        "clerk",
        "clerk > turn 2",
        "clerk > turn 2 > weather",
        "clerk > turn 3",
    ]
    assert paths.count("front desk > turn 1 > message") == paths.count("clerk > turn 2 > message") == 1
    said = [event for event in events if event.type == "message.completed"]
    assert [(event.payload["role"], event.text) for event in said] == [
        ("user", "How is Rome?"),
        ("assistant", ""),
        ("assistant", ""),
        ("assistant", "It is sunny"),
    ]
    assert said[2].payload["content"] == [
        {"type": "tool_call", "id": "c2", "name": "weather", "args": {"city": "Rome"}}
    ]
    assert (said[1].payload["model"], said[1].payload["usage"]) == ("scripted", {"input_tokens": 5, "output_tokens": 2})
    (done,) = (event for event in events if event.type == "tool.completed")
    assert (done.payload["args"], done.payload["result"]) == ({"city": "Rome"}, "sunny in Rome")
    (handoff,) = (event for event in events if event.type == "custom.handoff")
    assert handoff.payload == {"from_agent": "front desk", "to_agent": "clerk"}
    assert client.timeline(run["run_id"])["summary"]["usage"] == {"input_tokens": 15, "output_tokens": 6}


async def test_a_tool_that_fails_is_failed_and_so_is_the_run_it_ends(
    client: Client, processor: RunreelTraceProcessor
) -> None:
    agent = Agent(name="clumsy", model=ScriptedModel([calls("c1", "break_down")]), tools=[break_down])
    with pytest.raises(Exception, match="broken"):
        await Runner.run(agent, "go", run_config=RunConfig(workflow_name="Clumsy flow"))
    run, events = recorded(client, "Clumsy flow")
    (failed,) = (event for event in events if event.type == "tool.failed")
    assert failed.payload["name"] == "break_down"
    assert said(failed.payload["error"]) == "RuntimeError: broken"
    assert failed.payload["error"]["stack"].endswith('in break_down\n    raise RuntimeError("broken")')
    assert (run["status"], said(run["error"]["cause"])) == ("failed", "RuntimeError: broken")


async def test_an_agent_that_does_not_come_to_an_end_is_a_failed_run(
    client: Client, processor: RunreelTraceProcessor
) -> None:
    replies = [[calls(f"c{turn}", "weather", city="Rome")] for turn in range(3)]
    agent = Agent(name="endless", model=ScriptedModel(*replies), tools=[weather])
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(agent, "go", max_turns=2, run_config=RunConfig(workflow_name="Endless flow"))
    run, _ = recorded(client, "Endless flow")
    assert run["status"] == "failed"
    assert run["error"]["message"] == "Max turns exceeded"


async def test_guardrails_and_spans_of_ones_own_are_steps_in_one_trace_of_several_runs(
    client: Client, processor: RunreelTraceProcessor
) -> None:
    async def look(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    agent = Agent(name="careful", model=ScriptedModel([says("one")], [says("two")]))
    agent.input_guardrails = [InputGuardrail(guardrail_function=look, name="polite")]
    with trace("Two in one") as traced:
        assert processor.run_id(traced.trace_id) is not None
        with custom_span("around", {"size": 2}):
            await Runner.run(agent, "first")
        await Runner.run(agent, "second")
    assert processor.run_id(traced.trace_id) is None
    run, events = recorded(client, "Two in one")
    assert run["output"] == "two"
    paths = bars(client, run["run_id"])
    assert "around > careful > polite" in paths or "around > careful > turn 1 > polite" in paths
    assert paths.count("careful") == 1
    around = next(event for event in events if event.type == "step.completed" and event.payload["name"] == "around")
    assert around.payload["data"] == {"size": 2}
    polite = next(event for event in events if event.type == "step.completed" and event.payload["name"] == "polite")
    assert polite.payload["triggered"] is False


class Sealed:
    """Nothing can be learned of it."""

    @property
    def content(self) -> Any:
        raise RuntimeError("sealed")


@pytest.mark.parametrize(
    ("given", "output", "usage"),
    [
        (5, 7, 3),
        ([None], [None], {}),
        ([{"role": "user", "content": 1}], ["s", {"content": [None, "t", {"text": 4}]}], {1: 2}),
        ({"role": "user"}, Sealed(), object()),
        (b"bytes", {"tool_calls": 3, "type": []}, "many"),
        ([[]], [{"type": "reasoning", "summary": [3, {"text": 1}]}, {"tool_calls": [{"function": "["}]}], None),
        (None, [{"tool_calls": [{"function": {"arguments": "[" * 100_000}}]}], None),
    ],
)
def test_a_generation_of_any_shape_is_a_message(
    client: Client, processor: RunreelTraceProcessor, given: Any, output: Any, usage: Any
) -> None:
    # The SDK logs what a processor raises; here it is to be seen.
    with trace("Odd shapes") as traced:
        run_id = str(processor.run_id(traced.trace_id))
        span = generation_span(input=given, output=output, usage=usage)
        span.start()
        processor.on_span_end(span)
    client.flush()
    said = [event for event in client.events(run_id, types="message.completed") if event.payload["role"] != "user"]
    assert len(said) == 1
    assert client.get_run(run_id)["status"] == "completed"


async def test_a_server_that_is_away_breaks_no_agent() -> None:
    client = Client("http://127.0.0.1:9", on_error="ignore")
    set_trace_processors([RunreelTraceProcessor(client=client)])
    agent = Agent(name="alone", model=ScriptedModel([says("done")]))
    assert (await Runner.run(agent, "go")).final_output == "done"
    set_trace_processors([])
    client.close(timeout=0)
