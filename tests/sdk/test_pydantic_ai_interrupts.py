"""Calls of Pydantic AI's agents that wait for people or for results from outside, on a live server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic_agents import calls, recorded, scripted, told
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    RunContext,
    ToolDenied,
)

from conftest import Server
from runreel import Client, RunEnded
from runreel.pydantic_ai import RunreelCapability


def cleaner(capability: RunreelCapability, *replies: Any) -> Agent[None, Any]:
    """Wants to delete what may not be deleted without asking, and to weigh what only somebody else can weigh."""
    agent: Any = Agent(
        scripted(*replies), name="cleaner", output_type=[str, DeferredToolRequests], capabilities=[capability]
    )

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f"deleted {path}"

    @agent.tool
    def move(ctx: RunContext[None], path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"to": "attic"})
        return f"moved {path}"

    @agent.tool_plain
    async def weigh(path: str) -> str:
        raise CallDeferred

    return agent


@pytest.mark.parametrize("decisions", [("approve", "reject"), ("reject", "approve")])
async def test_a_call_with_the_id_of_one_that_was_answered_is_another_question(
    capability: RunreelCapability, client: Client, decisions: tuple[str, str]
) -> None:
    asked = [[calls("delete", f'{{"path":"{path}"}}', "delete:0")] for path in "ab"]
    agent = cleaner(capability, *asked, ["all done"])
    result = await agent.run("clean up")
    run_id = capability.run_id(result)
    for decision in decisions:
        client.flush()
        interrupts = client._transport.request("GET", "/api/interrupts")["interrupts"]
        (waiting,) = (interrupt for interrupt in interrupts if interrupt["run_id"] == run_id)
        client.resume(run_id, waiting["interrupt_id"], decision)
        answers = await asyncio.to_thread(capability.wait_for_results, result, timeout=20)
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    assert (result.output, capability.run_id(result)) == ("all done", run_id)
    run, events = recorded(client, run_id)
    assert run["status"] == "completed"
    spans = {(str(event.span_id), event.type): event.payload for event in events if event.span_id}
    first, second = ("completed" if decision == "approve" else "failed" for decision in decisions)
    assert spans["delete:0", "tool.started"]["args"] == {"path": "a"}
    assert spans["delete:0#2", "tool.started"]["args"] == {"path": "b"}
    assert {("delete:0", f"tool.{first}"), ("delete:0#2", f"tool.{second}")} <= spans.keys()
    assert spans["approval:delete:0", "interrupt.requested"]["args"] == {"path": "a"}
    assert spans["approval:delete:0#2", "interrupt.requested"]["args"] == {"path": "b"}


async def test_two_long_ids_that_begin_alike_are_two_questions(capability: RunreelCapability, client: Client) -> None:
    ids = {path: f"call__thought__{'x' * 930}{path}" for path in "ab"}
    asked = [calls("delete", f'{{"path":"{path}"}}', call_id) for path, call_id in ids.items()]
    agent = cleaner(capability, asked, ["all done"])
    first = await agent.run("clean up")
    run_id = capability.run_id(first)
    open_ids = open_interrupts(client, run_id)
    client.resume(run_id, open_ids[ids["a"]], "approve")
    client.resume(run_id, open_ids[ids["b"]], "reject")
    answers = await asyncio.to_thread(capability.wait_for_results, first, timeout=20)
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
    assert second.output == "all done"
    _, events = recorded(client, run_id)
    ends = {event.type: event.span_id for event in events if event.type in ("tool.completed", "tool.failed")}
    starts = [event for event in events if event.type == "tool.started"]
    assert {event.span_id: event.payload["args"] for event in starts} == {
        ends["tool.completed"]: {"path": "a"},
        ends["tool.failed"]: {"path": "b"},
    }


def open_interrupts(client: Client, run_id: str) -> dict[str, str]:
    client.flush()
    return {
        str(event.payload["tool_call_id"]): str(event.span_id)
        for event in client.events(run_id, types="interrupt.requested")
    }


async def test_a_person_answers_in_runreel_and_the_run_goes_on(capability: RunreelCapability, client: Client) -> None:
    asked = [
        calls("delete", '{"path":"a"}', "c1"),
        calls("delete", '{"path":"b"}', "c2"),
        calls("move", '{"path":"c"}', "c3"),
        calls("weigh", '{"path":"d"}', "c4"),
    ]
    agent = cleaner(capability, asked, ["all done"])
    first = await agent.run("clean up")
    run_id = capability.run_id(first)
    assert run_id == first.run_id
    open_ids = open_interrupts(client, run_id)
    run, events = recorded(client, run_id)
    assert run["status"] == "interrupted"
    requests = {event.payload["tool_call_id"]: event.payload for event in events if event.type == "interrupt.requested"}
    assert {call: payload["kind"] for call, payload in requests.items()} == {
        "c1": "approval",
        "c2": "approval",
        "c3": "approval",
        "c4": "external",
    }
    assert (requests["c1"]["prompt"], requests["c1"]["args"]) == ("Approve the call of delete", {"path": "a"})
    assert (requests["c3"]["tool"], requests["c3"]["metadata"]) == ("move", {"to": "attic"})

    client.resume(run_id, open_ids["c1"], "approve")
    client.resume(run_id, open_ids["c2"], "reject", "not that one")
    client.resume(run_id, open_ids["c3"], "approve", {"path": "C"})
    client.resume(run_id, open_ids["c4"], "respond", {"kg": 3})
    answers = await asyncio.to_thread(capability.wait_for_results, first, timeout=20)
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
    assert second.output == "all done"
    assert capability.run_id(second) == run_id != second.run_id

    run, events = recorded(client, run_id)
    assert (run["status"], run["output"]) == ("completed", "all done")
    assert Counter(told(events))["interrupt.resolved"] == 4
    assert Counter(told(events))["run.resumed"] == 1
    tools = [event for event in events if event.type.startswith("tool.")]
    assert Counter((event.span_id, event.type) for event in tools) == {
        ("c1", "tool.started"): 1,
        ("c1", "tool.completed"): 1,
        ("c2", "tool.started"): 1,
        ("c2", "tool.failed"): 1,
        ("c3", "tool.started"): 1,
        ("c3", "tool.completed"): 1,
        ("c4", "tool.started"): 1,
        ("c4", "tool.completed"): 1,
    }
    ends: dict[str, Any] = {str(event.span_id): event.payload for event in tools if event.type != "tool.started"}
    assert (ends["c1"]["result"], ends["c3"]["result"]) == ("deleted a", "moved C")
    assert ends["c2"]["error"] == {"type": "denied", "message": "not that one"}
    assert ends["c4"]["result"] == {"kg": 3}


async def test_answers_that_the_program_gives_itself_are_in_the_log(
    capability: RunreelCapability, client: Client
) -> None:
    agent = cleaner(capability, [calls("delete", '{"path":"a"}', "c1"), calls("delete", '{"path":"b"}', "c2")], ["ok"])
    first = await agent.run("clean up")
    results = DeferredToolResults(approvals={"c1": True, "c2": ToolDenied("no")})
    await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    run, events = recorded(client, first.run_id)
    assert run["status"] == "completed"
    resolved = {str(event.span_id): event.payload for event in events if event.type == "interrupt.resolved"}
    assert {name: payload["decision"] for name, payload in resolved.items()} == {
        "approval:c1": "approve",
        "approval:c2": "reject",
    }
    assert resolved["approval:c2"]["value"] == "no"


async def test_another_process_and_another_server_process_go_on_with_the_run(restartable: Server) -> None:
    with restartable.client(on_error="raise") as client, RunreelCapability(client=client, on_error="raise") as before:
        first = await cleaner(before, [calls("delete", '{"path":"a"}', "c1")]).run("clean up")
        client.flush()
        history = first.all_messages_json()
    restartable.kill()
    restartable.start()
    with restartable.client(on_error="raise") as client, RunreelCapability(client=client, on_error="raise") as after:
        client.resume(first.run_id, "approval:c1", "approve")
        answers = await asyncio.to_thread(after.wait_for_results, first.run_id, timeout=20)
        second = await cleaner(after, ["done"]).run(
            message_history=ModelMessagesTypeAdapter.validate_json(history), deferred_tool_results=answers
        )
        assert after.run_id(second) == first.run_id
        run, events = recorded(client, first.run_id)
        assert run["status"] == "completed"
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_waiting_ends_in_time_and_with_the_run(capability: RunreelCapability, client: Client) -> None:
    first = cleaner(capability, [calls("delete", '{"path":"a"}', "c1")]).run_sync("clean up")
    with pytest.raises(TimeoutError):
        capability.wait_for_results(first, timeout=0.2)
    client.resume(first.run_id, "approval:c1", "respond", {"later": True})
    denied = capability.wait_for_results(first, timeout=20).approvals["c1"]
    assert isinstance(denied, ToolDenied)
    assert "respond" in denied.message

    second = cleaner(capability, [calls("weigh", '{"path":"a"}', "c2")]).run_sync("weigh it")
    client.flush()
    client.cancel(second.run_id)
    with pytest.raises(RunEnded):
        capability.wait_for_results(second, timeout=20)


async def test_a_server_that_falls_silent_does_not_keep_a_run_from_going_on(restartable: Server) -> None:
    with restartable.client(on_error="ignore") as client, RunreelCapability(client=client) as capability:
        agent = cleaner(capability, [calls("delete", '{"path":"a"}', "c1")], ["done"])
        first = await agent.run("clean up")
        client.flush()
        restartable.kill()
        approved = DeferredToolResults(approvals={"c1": True})
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=approved)
        assert second.output == "done"
        restartable.start()
        # Without knowing what was before, it is recorded all the same.
        await asyncio.to_thread(client.flush)
        run, _ = await asyncio.to_thread(recorded, client, second.run_id)
        assert run["status"] == "completed"
