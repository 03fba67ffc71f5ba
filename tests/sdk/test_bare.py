"""Runs, steps and tools without a block; and texts that are written without a message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from reading import one, stored, types

from conftest import Server
from runreel import AsyncClient, Client


def spans(client: Client, run_id: str) -> list[tuple[str, Any]]:
    return [(event.type, event.payload.get("name")) for event in stored(client, run_id) if "name" in event.payload]


def test_a_text_that_was_begun_is_there_when_a_person_is_asked(client: Client) -> None:
    with client.run("asks") as run:
        run.token("Shall I?")
        run.approval("?")
        run.token("Waiting.")
    assert types(client, run.run_id)[2:] == [
        "message.completed",
        "interrupt.requested",
        "run.interrupted",
        "message.completed",
    ]
    assert client.get_run(run.run_id)["status"] == "interrupted"


def test_a_text_that_was_begun_is_there_when_a_run_is_detached(client: Client) -> None:
    with client.run("hands over") as run:
        run.token("half ")
        run.token("a text")
        run.detach()
    assert one(client, run.run_id, "message.completed").text == "half a text"
    assert client.get_run(run.run_id)["status"] == "running"


def test_a_run_without_a_block_begins_with_what_is_said_first(client: Client) -> None:
    run = client.run("bare", input={"n": 1})
    run.log.info("hello")
    run.complete("done")
    assert client.flush()
    assert types(client, run.run_id) == ["run.created", "run.started", "log.info", "run.completed"]
    assert client.get_run(run.run_id)["output"] == "done"


async def test_a_run_of_an_event_loop_needs_no_block(aclient: AsyncClient) -> None:
    run = aclient.run("bare")
    run.step("plan")
    run.complete()
    assert await aclient.flush()
    assert (await aclient.get_run(run.run_id))["status"] == "completed"


def test_a_block_that_is_entered_late_is_of_the_same_run(client: Client) -> None:
    run = client.run("late")
    run.log.info("before")
    with run:
        run.log.info("within")
    assert types(client, run.run_id) == ["run.created", "run.started", "log.info", "log.info", "run.completed"]


def test_a_child_of_a_run_that_has_said_nothing_is_created_after_it(client: Client) -> None:
    parent = client.run("boss")
    with client.run("hand", parent=parent) as child:
        pass
    parent.complete()
    assert client.flush()
    assert client.get_run(child.run_id)["parent_run_id"] == parent.run_id


def test_steps_and_tools_without_a_block_end_with_what_they_lie_in(client: Client) -> None:
    with client.run("bare") as run:
        plan = run.step("plan")
        plan.tool("search", {"q": "x"})
    assert spans(client, run.run_id) == [
        ("step.started", "plan"),
        ("tool.started", "search"),
        ("tool.completed", "search"),
        ("step.completed", "plan"),
    ]
    assert one(client, run.run_id, "tool.started").parent_span_id == plan.span_id
    assert types(client, run.run_id)[-1] == "run.completed"


def test_steps_and_tools_without_a_block_can_be_ended_once(client: Client) -> None:
    with client.run("bare") as run:
        tool = run.tool("search", {"q": "x"})
        tool.complete("3 hits")
        tool.complete("again")
        with run.step("write") as step:
            step.fail("no ink")
    assert one(client, run.run_id, "tool.completed").payload["result"] == "3 hits"
    assert one(client, run.run_id, "step.failed").payload["error"] == {"type": "Error", "message": "no ink"}
    assert len(spans(client, run.run_id)) == 4


def test_what_is_open_when_a_run_fails_has_failed_with_it(client: Client) -> None:
    with pytest.raises(OSError, match="no disk"), client.run("fails") as run:
        run.step("read")
        raise OSError("no disk")
    assert one(client, run.run_id, "step.failed").payload["error"]["message"] == "no disk"


class Odd(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("not now")

    def __len__(self) -> int:
        raise RuntimeError("not now")


class OddMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("not now")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("not now")

    def __len__(self) -> int:
        return 1

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("not now")


class OddText(str):
    def replace(self, *args: Any) -> str:
        raise RuntimeError("not now")


def test_no_payload_breaks_the_program(server: Server) -> None:
    with server.client(on_error="raise") as client:
        with client.run("odd", input=Odd([1]), metadata=OddMapping()) as run:
            for odd in (Odd([1]), OddMapping(), OddText("\ud800"), {OddMapping(): math.nan}, [Odd(), "kept", math.nan]):
                run.event("custom.odd", odd)
            run.artifact("object", {"a": object(), "b": "\ud800", "c": math.nan})
            lone = run.artifact("lone\udfff.txt", "a\ud800b")
            run.message([{"type": "text", "text": Odd()}], usage=OddMapping())
            run.log.info("odd", odd=OddMapping())
            run.tool("odd", OddMapping()).fail(OSError(Odd()))
        assert client.dropped == 0
        assert client.get_run(run.run_id)["status"] == "completed"
        assert one(client, run.run_id, "message.completed").payload["role"] == "assistant"
        assert next(iter(client.events(run.run_id, types="log.*"))).payload["message"] == "odd"
        kept = [event.payload for event in client.events(run.run_id, types="artifact.created")]
        assert (kept[1], lone["name"], lone["size"]) == (lone, "lone\ufffd.txt", 5)


@pytest.mark.parametrize(
    ("call", "given", "error"),
    [
        ("message", (5,), TypeError),
        ("token", (5,), TypeError),
        ("event", (None,), TypeError),
        ("artifact", ("name",), TypeError),
    ],
)
def test_a_call_that_is_a_mistake_is_told_at_once_and_leaves_nothing(
    client: Client, call: str, given: tuple[Any, ...], error: type[Exception]
) -> None:
    with client.run("mistaken") as run:
        with pytest.raises(error):
            getattr(run, call)(*given)
        with pytest.raises(ValueError, match="expires_in"):
            run.approval("?", expires_in=1e12)
    assert types(client, run.run_id) == ["run.created", "run.started", "run.completed"]
