"""Runners: handlers of the program carry out runs of a real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

import runreel
from conftest import JwtServer, Server
from runreel import Runner
from runreel.runner import Assignment

PATIENCE = 20.0


@contextmanager
def working(url: str, **settings: Any) -> Iterator[Runner]:
    runner = Runner(url, **settings)
    thread = threading.Thread(target=lambda: asyncio.run(runner.serve()), daemon=True)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def queued(client: runreel.Client, agent: str, **members: Any) -> str:
    headers = {name: value for name, value in client._transport._headers.items() if name == "authorization"}
    body = {"agent": agent, "start": False, **members}
    reply = httpx2.post(f"{client.url}/api/runs", json=body, headers=headers, trust_env=False)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["run_id"])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def ended(client: runreel.Client, run_id: str) -> Any:
    until(lambda: client.get_run(run_id)["ended_at"] is not None)
    return client.get_run(run_id)


def types(client: runreel.Client, run_id: str) -> list[str]:
    events = list(client.events(run_id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type for event in events]


def test_a_handler_says_what_it_does_and_its_return_value_is_the_output(client: runreel.Client) -> None:
    def handler(run: Assignment) -> dict[str, Any]:
        with run.step("plan") as step, step.tool("search", run.input) as tool:
            tool.result = "3 hits"
        with run.message() as message:
            for word in ("one ", "two"):
                message.token(word)
        run.artifact("notes.md", "text")
        return {"hits": 3}

    with working(client.url, agents={"py-sync": handler}):
        run_id = queued(client, "py-sync", input={"q": "x"}, title="A title")
        record = ended(client, run_id)
    assert (record["status"], record["output"]) == ("completed", {"hits": 3})
    told = types(client, run_id)
    # A file goes its own way: it may come before what was said before it, but never after the end.
    told.remove("artifact.created")
    assert told == [
        "run.created",
        "run.started",
        "step.started",
        "tool.started",
        "tool.completed",
        "step.completed",
        "message.completed",
        "run.completed",
    ]


def test_coroutines_work_side_by_side_and_an_exception_fails_its_run_alone(client: runreel.Client) -> None:
    met = asyncio.Event()

    async def handler(run: Assignment) -> str:
        if run.input == "bad":
            raise RuntimeError("no luck")
        if run.input == "first":
            await met.wait()
        else:
            met.set()
        return str(run.input)

    with working(client.url, agents={"py-async": handler}, capacity=3):
        runs = [queued(client, "py-async", input=word) for word in ("first", "second", "bad")]
        records = [ended(client, run_id) for run_id in runs]
    assert [record["status"] for record in records] == ["completed", "completed", "failed"]
    assert records[2]["error"]["message"] == "no luck"


def test_a_cancelled_run_is_known_to_its_handler(client: runreel.Client) -> None:
    seen = threading.Event()

    def handler(run: Assignment) -> None:
        run.log.info("begun")
        until(lambda: run.cancelled)
        run.log.info("too late")
        seen.set()

    with working(client.url, agents={"py-cancel": handler}):
        run_id = queued(client, "py-cancel")
        until(lambda: client.get_run(run_id)["last_seq"] == 3)
        client.cancel(run_id, "enough")
        assert seen.wait(PATIENCE)
    assert types(client, run_id) == ["run.created", "run.started", "log.info", "run.cancelled"]


def test_a_question_waits_for_its_answer(client: runreel.Client) -> None:
    def handler(run: Assignment) -> Any:
        return run.ask("Ship it?", timeout=PATIENCE).value

    async def asking(run: Assignment) -> Any:
        return (await run.ask_async("Ship it?")).value

    with working(client.url, agents={"py-ask": handler, "py-ask-async": asking}, capacity=2):
        for agent in ("py-ask", "py-ask-async"):
            run_id = queued(client, agent)
            until(lambda run_id=run_id: client.get_run(run_id)["status"] == "interrupted")
            client.resume(run_id, "question-1", "respond", {"when": "now"})
            assert ended(client, run_id)["output"] == {"when": "now"}


def test_a_question_may_have_a_long_id_of_the_programs_own(client: runreel.Client) -> None:
    long = "q" * 128

    def handler(run: Assignment) -> Any:
        return run.ask("Ship it?", interrupt_id=long, timeout=PATIENCE).value

    with working(client.url, agents={"py-ask-long": handler}):
        run_id = queued(client, "py-ask-long")
        until(lambda: client.get_run(run_id)["status"] == "interrupted")
        client.resume(run_id, long, "respond", "now")
        assert ended(client, run_id)["output"] == "now"


def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(restartable: Server) -> None:
    with restartable.client() as client:
        url = client.url

        def handler(run: Assignment) -> str:
            for number in range(40):
                run.event("custom.step", {"number": number})
                time.sleep(0.05)
            return "done"

        with working(url, agents={"py-kill": handler}, capacity=4):
            runs = [queued(client, "py-kill") for _ in range(4)]
            for _ in range(3):
                time.sleep(0.4)
                restartable.kill()
                restartable.start()
            for run_id in runs:
                assert ended(client, run_id)["status"] == "completed"
        for run_id in runs:
            numbers = [event.payload["number"] for event in client.events(run_id) if event.type == "custom.step"]
            assert numbers == list(range(40))


def test_a_runner_without_a_credential_is_told_so_and_does_not_try_for_ever(jwt_server: JwtServer) -> None:
    runner = Runner(jwt_server.url, agents={"x": lambda run: None})
    with pytest.raises(runreel.RunreelError, match="401"):
        asyncio.run(runner.serve())
    with jwt_server.client("alice") as client:
        token = jwt_server.token("alice")
        with working(jwt_server.url, token=token, agents={"py-jwt": lambda run: run.input}):
            assert ended(client, queued(client, "py-jwt", input=5))["output"] == 5
