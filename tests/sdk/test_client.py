"""Runs, what happens in them, and how they are read, on a real server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from reading import one, said, stored, types, until

from conftest import JwtServer, Server
from runreel import (
    ApiError,
    AsyncClient,
    Client,
)


def test_a_run_is_there_when_its_block_is_entered_and_completed_when_it_is_left(client: Client) -> None:
    with client.run("reporter", title="Nightly", input={"z": 1, "a": 2}, metadata={"b": 1}, tags=["x"]) as run:
        record = client.get_run(run.run_id)
        assert (record["status"], record["title"], record["agent"]) == ("running", "Nightly", "reporter")
        assert (record["input"], record["metadata"], record["tags"]) == ({"z": 1, "a": 2}, {"b": 1}, ["x"])
        run.output = {"answer": 42}
        assert not run.ended
    assert run.ended
    record = client.get_run(run.run_id)
    assert (record["status"], record["output"]) == ("completed", {"answer": 42})


def test_an_exception_fails_the_run_and_goes_on(client: Client) -> None:
    with pytest.raises(ValueError, match="no such file"), client.run("fails") as run:
        raise ValueError("no such file")
    record = client.get_run(run.run_id)
    assert (record["status"], said(record["error"])) == ("failed", "ValueError: no such file")


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupted_program_cancels_its_run(client: Client, error: type[BaseException]) -> None:
    with pytest.raises(error), client.run("stopped") as run:
        raise error
    assert client.get_run(run.run_id)["status"] == "cancelled"


def test_exit_without_an_error_code_completes_the_run(client: Client) -> None:
    with pytest.raises(SystemExit), client.run("leaves") as run:
        raise SystemExit(0)
    assert client.get_run(run.run_id)["status"] == "completed"


def test_an_explicit_end_is_the_only_one(client: Client) -> None:
    with client.run("early") as run:
        run.complete("done")
        run.fail("too late")
    assert types(client, run.run_id) == ["run.created", "run.started", "run.completed"]
    assert client.get_run(run.run_id)["output"] == "done"


def test_a_name_with_spaces_is_a_title_and_no_agent(client: Client) -> None:
    with client.run("Nightly report\n") as run:
        pass
    record = client.get_run(run.run_id)
    assert (record["title"], record["agent"]) == ("Nightly report ", None)


def test_spans_nest_in_the_object_they_were_asked_of(client: Client) -> None:
    with client.run("nesting") as run, run.step("plan") as plan:
        with plan.tool("search", {"q": "x"}) as tool:
            tool.result = "3 hits"
            tool.log.info("asked", attempts=1)
        with plan.step("inner") as inner:
            inner.message("hello", usage={"input_tokens": 3}, model="m-1")
        run.event("custom.noted", {"n": 1})
    events = {event.type: event for event in stored(client, run.run_id) if not event.type.startswith("step.")}
    steps = [event for event in stored(client, run.run_id) if event.type == "step.started"]
    assert [(step.payload["name"], step.parent_span_id) for step in steps] == [("plan", None), ("inner", plan.span_id)]
    started, completed = events["tool.started"], events["tool.completed"]
    assert started.parent_span_id == plan.span_id
    assert started.payload == {"name": "search", "args": {"q": "x"}}
    assert completed.span_id == started.span_id == tool.span_id
    assert completed.payload["result"] == "3 hits"
    assert 0 <= completed.payload["duration_ms"] < 10_000
    assert events["log.info"].parent_span_id == tool.span_id
    assert events["log.info"].payload == {"message": "asked", "attempts": 1}
    assert events["message.completed"].parent_span_id == inner.span_id
    assert events["custom.noted"].parent_span_id is None
    timeline = client.timeline(run.run_id)
    assert [(span["name"], span["status"]) for span in timeline["spans"][1:4]] == [
        ("plan", "completed"),
        ("search", "completed"),
        ("inner", "completed"),
    ]
    assert timeline["summary"]["usage"] == {"input_tokens": 3}


def test_what_fails_in_a_span_is_told_of_it(client: Client) -> None:
    with (
        client.run("failing") as run,
        pytest.raises(OSError, match="no disk"),
        run.step("read") as step,
        step.tool("open"),
    ):
        raise OSError("no disk")
    for type in ("tool.failed", "step.failed"):
        assert one(client, run.run_id, type).payload["error"]["message"] == "no disk"
    assert client.get_run(run.run_id)["status"] == "completed"


def test_a_message_is_read_as_it_is_written_and_stored_whole(client: Client) -> None:
    with client.run("speaker") as run:
        reader = client.stream(run.run_id, after=2)
        with run.message() as message:
            message.token("Hello, ")
            first = next(reader)
            message.token("wörld")
            message.usage = {"output_tokens": 2}
        seen = [first, *(event for event in until(reader, "message.completed"))]
    # Who has connected by the first token gets it, and who has not gets the text so far.
    text = ""
    for event in seen[:-1]:
        assert event.type in ("message.delta", "message.snapshot")
        before = text if event.type == "message.delta" else ""
        text = before + event.text
        # A delta says where it begins, a snapshot where it ends.
        assert event.payload["offset"] == len(before if event.type == "message.delta" else text)
    assert (text, seen[-2].type) == ("Hello, wörld", "message.delta")
    whole = seen[-1]
    assert (whole.text, whole.payload["role"], whole.payload["usage"]) == (
        "Hello, wörld",
        "assistant",
        {"output_tokens": 2},
    )


def test_tokens_without_a_message_make_one(client: Client) -> None:
    with client.run("speaker") as run:
        run.token("one ")
        run.token("text")
        run.message(usage={"output_tokens": 2}, model="m-1")
        run.token("another")
    first, second = client.events(run.run_id, types="message.completed")
    assert (first.text, first.payload["usage"], first.payload["model"]) == ("one text", {"output_tokens": 2}, "m-1")
    assert second.text == "another"


def test_a_message_that_broke_off_says_so(client: Client) -> None:
    with pytest.raises(ValueError, match="line lost"), client.run("speaker") as run, run.message() as message:
        message.token("Hel")
        raise ValueError("line lost")
    whole = one(client, run.run_id, "message.completed")
    assert (whole.text, whole.payload["error"]["message"]) == ("Hel", "line lost")


def test_an_event_id_counts_once(client: Client) -> None:
    with client.run("twice") as run:
        for n in range(3):
            run.event("custom.noted", {"n": n}, event_id="mine")
    assert [event.payload for event in client.events(run.run_id, types="custom.noted")] == [{"n": 0}]


def test_a_child_belongs_to_its_parent(client: Client) -> None:
    with (
        client.run("boss", role="supervisor", thread_id="t-children") as boss,
        client.run("hand", role="worker", parent=boss) as hand,
    ):
        hand.log.info("at work")
    child = client.get_run(hand.run_id)
    assert (child["parent_run_id"], child["thread_id"], child["role"]) == (boss.run_id, "t-children", "worker")
    tree = list(client.stream(boss.run_id, tree=True))
    assert {event.run_id for event in tree} == {boss.run_id, hand.run_id}


def test_another_process_goes_on_with_a_run(server: Server, client: Client) -> None:
    with client.run("long") as run:
        run.detach()
    assert client.get_run(run.run_id)["status"] == "running"
    with server.client(on_error="raise") as other, other.attach(run.run_id) as again:
        again.log.info("back")
    assert types(client, run.run_id)[2:] == ["log.info", "run.completed"]


def test_a_run_with_an_id_of_ones_own_is_created_once(client: Client) -> None:
    with client.run("first") as run:
        run.detach()
    with client.run("second", run_id=run.run_id, attach=True) as again:
        again.log.info("back")
    assert client.get_run(run.run_id)["title"] == "first"
    with pytest.raises(ApiError, match="run_exists"), client.run("third", run_id=run.run_id):
        pass


def test_a_run_is_found_by_its_id_in_the_callers_own_system(client: Client) -> None:
    with client.run("ours", external_id="build/42 é") as run:
        run.detach()
    found = client.put_run("build/42 é", title="another")
    assert (found["run_id"], found["title"]) == (run.run_id, "ours")
    with client.attach(found["run_id"]) as again:
        again.log.info("back")
    assert client.run_by_external_id("build/42 é")["status"] == "completed"
    assert [listed["run_id"] for listed in client.list_runs(external_id="build/42 é")] == [run.run_id]
    created = client.put_run("build/43", agent="builder", tags=["x"])
    assert (created["external_id"], created["agent"], created["tags"]) == ("build/43", "builder", ["x"])
    with pytest.raises(ApiError, match="external_id_taken"), client.run("other", external_id="build/43"):
        pass
    with pytest.raises(ApiError, match="not_found"):
        client.run_by_external_id("build/44")


def test_a_field_that_no_run_has_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(TypeError, match="titel"):
        client.run("ours", **{"titel": "x"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="titel"):
        client.put_run("build/45", **{"titel": "x"})  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="not_found"):
        client.run_by_external_id("build/45")


def test_a_run_says_how_long_it_stays(client: Client) -> None:
    with client.run("brief", external_id="brief/1", ttl_s=3_600):
        pass
    assert client.run_by_external_id("brief/1")["ttl_s"] == 3_600
    assert client.put_run("kept/1", ttl_s=0)["ttl_s"] == 0
    assert client.put_run("kept/2")["ttl_s"] is None


def test_runs_are_listed_page_by_page(client: Client) -> None:
    for n in range(3):
        with client.run("listed", tags=["paged"], title=f"run {n}"):
            pass
    titles = [run["title"] for run in client.list_runs(tag="paged", status=["completed", "failed"])]
    assert titles == ["run 2", "run 1", "run 0"]


def test_events_are_read_page_by_page(client: Client) -> None:
    with client.run("many") as run:
        for n in range(1_200):
            run.event("custom.counted", {"n": n})
    events = list(client.events(run.run_id, after=2, types=["custom.*", "run.completed"]))
    assert [event.seq for event in events] == list(range(3, 1_204))
    assert [event.payload["n"] for event in events[:-1]] == list(range(1_200))


def test_a_cancelled_run_takes_no_more(server: Server, client: Client) -> None:
    with server.client(on_error="ignore") as producer, producer.run("doomed") as run:
        assert client.cancel(run.run_id, "enough")["status"] == "cancelled"
        run.log.info("still here")
        producer.flush()
        assert run.ended
        run.log.info("and here")
    assert types(client, run.run_id)[2:] == ["run.cancelled"]
    assert producer.dropped == 3


def test_a_deleted_run_is_gone(client: Client) -> None:
    with client.run("brief") as run:
        pass
    client.delete_run(run.run_id)
    with pytest.raises(ApiError) as refused:
        client.get_run(run.run_id)
    assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_a_thread_is_what_its_runs_share(client: Client) -> None:
    for text in ("Hello", "Again"):
        with client.run("turn", thread_id="talk..1") as run:
            run.message(text, role="user")
            run.message(f"{text} to you")
    said = [(message["role"], message["text"]) for message in client.threads.messages("talk..1")]
    assert said == [
        ("user", "Hello"),
        ("assistant", "Hello to you"),
        ("user", "Again"),
        ("assistant", "Again to you"),
    ]
    assert next(client.threads.runs("talk..1", status=["completed"]))["run_id"] == run.run_id
    assert client.threads.get("talk..1")["metadata"] == {}


def test_a_thread_is_kept_copied_pruned_and_deleted(client: Client) -> None:
    thread = client.threads.put("kept", metadata={"topic": "billing"}, ttl_s=60)
    assert (thread["metadata"], thread["ttl_s"]) == ({"topic": "billing"}, 60)
    assert client.threads.put("kept", ttl_s=None)["metadata"] == {"topic": "billing"}
    assert client.threads.copy("kept", "kept:copy")["metadata"] == {"topic": "billing"}
    assert [row["thread_id"] for row in client.threads.list(q="kept")] == ["kept:copy", "kept"]
    assert client.threads.prune(["kept", "kept:copy"])["checkpoints"] == 0
    assert client.threads.prune(["kept:copy"], "delete")["threads"] == 1
    client.threads.delete("kept")
    with pytest.raises(ApiError, match="not_found"):
        client.threads.get("kept")


async def test_an_event_loop_keeps_threads(aclient: AsyncClient) -> None:
    async with aclient.run("turn", thread_id="looped") as run:
        run.message("Hello")
    assert [message["text"] async for message in aclient.threads.messages("looped")] == ["Hello"]
    assert [row["run_id"] async for row in aclient.threads.runs("looped")] == [run.run_id]
    assert [row["thread_id"] async for row in aclient.threads.list(q="looped")] == ["looped"]


def test_people_do_not_see_each_others_runs(jwt_server: JwtServer) -> None:
    with jwt_server.client("ann", on_error="raise") as ann, jwt_server.client("bob") as bob:
        with ann.run("private") as run:
            pass
        assert ann.get_run(run.run_id)["status"] == "completed"
        with pytest.raises(ApiError, match="not_found"):
            bob.get_run(run.run_id)
        with pytest.raises(ApiError, match="not_found"):
            list(bob.stream(run.run_id))


def test_without_a_credential_the_program_goes_on_and_is_told(
    jwt_server: JwtServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(jwt_server.url) as client, client.run("nobody") as run:
        run.log.info("hello")
    assert client.dropped == 2
    assert "unauthorized" in caplog.text


async def test_a_run_of_an_event_loop(aclient: AsyncClient) -> None:
    async with aclient.run("loop", input="x") as run:
        with run.step("plan") as step, step.tool("search", {"q": 1}) as tool:
            tool.result = 2
        run.token("hi")
        run.output = "done"
    record = await aclient.get_run(run.run_id)
    assert (record["status"], record["output"]) == ("completed", "done")
    streamed = [event.type async for event in aclient.stream(run.run_id)]
    assert streamed == [event.type async for event in aclient.events(run.run_id)]
    assert streamed[2:] == [
        "step.started",
        "tool.started",
        "tool.completed",
        "step.completed",
        "message.completed",
        "run.completed",
    ]
    assert run.run_id in [row["run_id"] async for row in aclient.list_runs(agent="loop")]
    assert (await aclient.timeline(run.run_id))["run_id"] == run.run_id


async def test_a_cancelled_task_cancels_its_run(aclient: AsyncClient) -> None:
    entered: asyncio.Queue[str] = asyncio.Queue()

    async def work() -> None:
        async with aclient.run("task") as run:
            entered.put_nowait(run.run_id)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    run_id = await entered.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await aclient.get_run(run_id))["status"] == "cancelled"


async def test_a_stream_can_be_left_early(aclient: AsyncClient) -> None:
    async with aclient.run("watched") as run, aclosing(aclient.stream(run.run_id)) as events:
        async for event in events:
            assert event.type == "run.created"
            break
