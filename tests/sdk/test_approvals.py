"""Runs that wait for a person, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
from reading import later, types

from conftest import Server
from runreel import ApiError, AsyncClient, Client, RunEnded


@pytest.mark.parametrize(("decision", "approved"), [("approve", True), ("reject", False), ("respond", False)])
def test_an_approval_waits_for_a_person(client: Client, decision: Any, approved: bool) -> None:
    with client.run("careful") as run:
        approval = run.approval("Delete it?", details={"path": "/x"})
        later(0.1, client.resume, run.run_id, approval.interrupt_id, decision, {"why": "because"})
        answer = approval.wait(timeout=20)
    assert (answer.decision, answer.approved, answer.value) == (decision, approved, {"why": "because"})
    assert types(client, run.run_id)[2:] == [
        "interrupt.requested",
        "run.interrupted",
        "interrupt.resolved",
        "run.resumed",
        "run.completed",
    ]


def test_nobody_answers_in_time(client: Client) -> None:
    with client.run("hasty") as run:
        approval = run.approval("Well?")
        with pytest.raises(TimeoutError):
            approval.wait(timeout=0.3)
        # The question stands, and so does the run when its block is left.
    assert client.get_run(run.run_id)["status"] == "interrupted"


def test_an_approval_expires(client: Client) -> None:
    with client.run("expiring") as run:
        answer = run.approval("Quick?", expires_in=0.1).wait(timeout=30)
    assert (answer.decision, answer.approved) == ("expired", False)
    assert client.get_run(run.run_id)["status"] == "completed"


def test_a_cancel_answers_what_is_open(server: Server) -> None:
    with server.client(on_error="ignore") as client, client.run("doomed") as run:
        approval = run.approval("Well?")
        later(0.2, client.cancel, run.run_id)
        assert approval.wait(timeout=20).decision == "cancelled"


def test_a_run_that_ends_without_an_answer_ends_the_wait(server: Server) -> None:
    with server.client(on_error="ignore") as client, client.run("failing") as run:
        approval = run.approval("Well?")
        run.fail("gave up")
        with pytest.raises(RunEnded):
            approval.wait(timeout=20)


def test_the_first_answer_stands(client: Client) -> None:
    with client.run("careful") as run:
        approval = run.approval("Well?")
        client.flush()
        client.resume(run.run_id, approval.interrupt_id, "approve")
        client.resume(run.run_id, approval.interrupt_id, "approve")
        with pytest.raises(ApiError, match="interrupt_closed"):
            client.resume(run.run_id, approval.interrupt_id, "reject")
        assert approval.wait(timeout=20).approved


def test_an_approval_outlives_the_program_that_asked(server: Server, client: Client) -> None:
    with client.run("patient") as run:
        run.approval("Ship it?", interrupt_id="ship")
    assert client.get_run(run.run_id)["status"] == "interrupted"
    client.resume(run.run_id, "ship", "approve")
    with server.client(on_error="raise") as later_client, later_client.attach(run.run_id) as again:
        assert again.approval("Ship it?", interrupt_id="ship").wait(timeout=20).approved
    assert types(client, run.run_id).count("interrupt.requested") == 1
    assert client.get_run(run.run_id)["status"] == "completed"


def test_an_approval_outlives_the_server(restartable: Server) -> None:
    with restartable.client(on_error="raise") as client, client.run("patient") as run:
        approval = run.approval("Ship it?")
        client.flush()

        def restart_and_answer() -> None:
            restartable.kill()
            restartable.start()
            with restartable.client() as person:
                person.resume(run.run_id, approval.interrupt_id, "approve")

        answering = later(0.3, restart_and_answer)
        assert approval.wait(timeout=60).approved
        answering.join()
        run.complete()
        client.flush()
        assert client.get_run(run.run_id)["status"] == "completed"


async def test_an_event_loop_waits_for_a_person(aclient: AsyncClient) -> None:
    async with aclient.run("careful") as run:
        approval = run.approval("Go?")
        with pytest.raises(TimeoutError):
            await approval.wait(timeout=0.3)
        await aclient.resume(run.run_id, approval.interrupt_id, "respond", "Thursday")
        answer = await approval.wait(timeout=20)
    assert (answer.decision, answer.value) == ("respond", "Thursday")


@pytest.mark.parametrize("length", [1, 119, 128, 300])
def test_a_question_may_have_any_id_of_the_programs_own(client: Client, length: int) -> None:
    ids = [f"{'q' * (length - 1)}{last}" for last in "ab"]
    with client.run("asks") as run:
        for interrupt_id in ids:
            approval = run.approval(f"Ship {interrupt_id[-1]}?", interrupt_id=interrupt_id)
            client.flush()
            client.resume(run.run_id, approval.interrupt_id, "respond", interrupt_id[-1])
            assert approval.wait(timeout=20).value == interrupt_id[-1]
            assert length > 128 or approval.interrupt_id == interrupt_id
        # The same question, asked again after a restart.
        again = run.approval("Ship a?", interrupt_id=ids[0])
        assert again.wait(timeout=20).value == "a"
