"""What is emitted, on its way: batches, bounds, failures. The host program must not notice."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from conftest import Fake, Server
from runreel import AsyncClient, Client, ConnectionFailed, EventsDropped
from runreel._outbox import BATCH_BYTES, BATCH_EVENTS
from runreel._payload import PAYLOAD_BYTES, encoded

SOURCE = Path(__file__).parent / "../../sdk/python/src"
NOWHERE = "http://127.0.0.1:1"


def batches(fake: Fake) -> list[list[dict[str, Any]]]:
    return [seen.json for seen in fake.requests if seen.path.endswith("/events")]


def sent(fake: Fake) -> list[dict[str, Any]]:
    return [event for batch in batches(fake) for event in batch]


def described(events: list[dict[str, Any]]) -> list[Any]:
    return [event["payload"].get("n", event["type"]) for event in events]


def test_events_share_requests_and_keep_their_order(fake: Fake) -> None:
    with Client(fake.url) as client, client.run("busy") as run:
        for n in range(1_700):
            run.event("custom.counted", {"n": n})
    assert described(sent(fake)) == [*range(1_700), "run.completed"]
    assert max(len(batch) for batch in batches(fake)) <= BATCH_EVENTS
    assert len(batches(fake)) < 20
    assert len({event["event_id"] for event in sent(fake)}) == 1_701


def test_batches_stay_under_a_mebibyte(fake: Fake) -> None:
    with Client(fake.url) as client, client.run("heavy") as run:
        for n in range(100):
            run.event("custom.counted", {"n": n, "text": "x" * 40_000})
    assert described(sent(fake)) == [*range(100), "run.completed"]
    assert max(len(seen.body) for seen in fake.requests) <= BATCH_BYTES


def test_pieces_of_one_text_are_put_together(fake: Fake) -> None:
    with Client(fake.url, flush_interval=0.2) as client, client.run("speaker") as run, run.message() as message:
        for _ in range(500):
            message.token("ab")
    pieces = [event for event in sent(fake) if event["type"] == "message.delta"]
    assert "".join(piece["payload"]["text"] for piece in pieces) == "ab" * 500
    assert len(pieces) < 5
    assert all("event_id" not in piece and piece["span_id"] == message.span_id for piece in pieces)


def test_a_repeat_carries_the_same_ids_and_no_text_twice(fake: Fake) -> None:
    with Client(fake.url) as client, client.run("doubtful") as run:
        fake.hangs_up()
        with run.message() as message:
            message.token("Hello")
        run.log.info("after")
        assert client.flush()
        first, second = batches(fake)
        assert [event["type"] for event in first] == ["message.delta", "message.completed", "log.info"]
        assert second == first[1:]
        assert client.dropped == 0


def test_a_busy_server_gets_everything_again_when_it_says(fake: Fake) -> None:
    with Client(fake.url) as client, client.run("patient") as run:
        fake.refuses(429, "busy", Retry_After="1").refuses(503, "outcome_unknown", Retry_After="0")
        began = time.monotonic()
        run.log.info("one")
        assert client.flush()
        assert time.monotonic() - began >= 1
        first, second, third = batches(fake)
        assert first == second == third


def test_one_bad_event_does_not_lose_the_others(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with Client(fake.url) as client, client.run("mixed") as run:
        fake.refuses(400, "invalid_event").answers(200, {}).refuses(400, "invalid_event").answers(200, {})
        for n in range(3):
            run.event("custom.counted", {"n": n})
        assert client.flush()
        assert [described(batch) for batch in batches(fake)] == [[0, 1, 2], [0], [1], [2]]
        assert client.dropped == 1
    assert "invalid_event" in caplog.text


def test_a_bad_event_is_refused_by_the_real_server_and_the_others_are_stored(server: Server) -> None:
    with server.client(on_error="raise") as client:
        with pytest.raises(EventsDropped, match="invalid_event"), client.run("mixed") as run:
            run.log.info("one")
            run.event("step.imagined", {})
            run.log.info("two")
        kinds = [event.type for event in client.events(run.run_id)][2:]
        assert kinds == ["log.info", "log.info", "run.completed"]
        assert client.dropped == 1


@pytest.fixture
def silent(fake: Fake) -> Iterator[str]:
    """A server that answers nothing as long as the test lasts: who waits for it is ended by the test's time limit."""
    over = threading.Event()

    def answers_nothing(handler: Any) -> None:
        over.wait()
        handler.close_connection = True

    fake.otherwise = answers_nothing
    yield fake.url
    over.set()


def test_a_program_does_not_wait_for_an_answer(silent: str) -> None:
    client = Client(silent, timeout=600, on_error="ignore")
    for _ in range(3):
        with client.run("unheard") as run, run.step("think"):
            run.token("hm")
            run.message("done")
    client.close(timeout=0.1)
    assert client.dropped == 15


def test_a_program_does_not_wait_for_a_server_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(NOWHERE)
    for _ in range(3):
        with client.run("lonely") as run, run.step("think"):
            run.token("hm")
            run.message("done")
    client.close(timeout=0.1)
    assert client.dropped == 15
    assert caplog.text.count("events are queued") == 1
    assert caplog.text.count("15 events were dropped") == 1


def test_what_was_emitted_meanwhile_arrives_later(restartable: Server) -> None:
    with restartable.client() as client:
        restartable.stop()
        with client.run("boss", thread_id="t") as boss:
            with client.run("hand", parent=boss) as hand:
                hand.log.info("at work")
            boss.log.info("after")
        restartable.start()
        assert client.flush(60)
        assert client.dropped == 0
        for run in (boss, hand):
            kinds = [event.type for event in client.events(run.run_id)]
            assert kinds == ["run.created", "run.started", "log.info", "run.completed"]


def test_the_queue_has_a_bound_and_says_what_it_drops(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(NOWHERE, max_queue_events=100)
    with client.run("chatty") as run:
        for n in range(150):
            run.token(str(n))
            run.event("custom.counted", {"n": n})
    assert 50 <= client.dropped <= 100
    assert caplog.text.count("the queue is full") == 1
    client.close(timeout=0)


def test_the_queue_has_a_bound_in_bytes() -> None:
    client = Client(NOWHERE, max_queue_bytes=100_000, on_error="ignore")
    with client.run("heavy") as run:
        for _ in range(10):
            run.event("custom.big", "x" * 20_000)
    assert client.dropped == 6
    client.close(timeout=0)


def test_errors_are_raised_by_who_wants_them() -> None:
    client = Client(NOWHERE, on_error="raise")
    with pytest.raises(ConnectionFailed), client.run("strict"):
        raise AssertionError("never entered")
    with pytest.raises(EventsDropped):
        client.close(timeout=0)


def test_the_error_of_the_program_is_the_one_to_see(fake: Fake) -> None:
    client = Client(fake.url, on_error="raise")
    with pytest.raises(ZeroDivisionError), client.run("strict"):
        fake.refuses(400, "invalid_event")
        raise ZeroDivisionError
    client._sender._pending = None
    client.close()


def test_a_refused_run_is_told_once(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    fake.refuses(400, "invalid_request")
    with Client(fake.url) as client, client.run("bad", thread_id="no spaces allowed") as run:
        assert run.ended
        run.log.info("one")
    assert client.dropped == 2
    assert caplog.text.count("was not created") == 1
    assert len(fake.requests) == 1


def test_a_server_that_fails_is_not_asked_for_ever(fake: Fake) -> None:
    with Client(fake.url, on_error="ignore") as client, client.run("unlucky") as run:
        for _ in range(5):
            fake.refuses(500, "internal")
        run.log.info("one")
        assert client.flush()
        assert (client.dropped, len(batches(fake))) == (1, 5)


def test_threads_may_share_a_run(server: Server) -> None:
    with server.client(on_error="raise") as client:
        with client.run("shared") as run:

            def work(worker: int) -> None:
                for n in range(100):
                    run.event("custom.counted", {"worker": worker, "n": n})

            workers = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        found = defaultdict(list)
        for event in client.events(run.run_id, types="custom.*"):
            found[event.payload["worker"]].append(event.payload["n"])
        assert found == {worker: list(range(100)) for worker in range(8)}


def test_runs_that_interleave_each_keep_their_order(fake: Fake) -> None:
    with Client(fake.url) as client, client.run("a") as a, client.run("b") as b:
        for n in range(300):
            (a if n % 2 else b).event("custom.counted", {"n": n})
        assert client.flush()
        by_run: dict[str, list[Any]] = defaultdict(list)
        for seen in fake.requests:
            if seen.path.endswith("/events"):
                by_run[seen.path] += described(seen.json)
    assert by_run[f"/api/runs/{a.run_id}/events"] == list(range(1, 300, 2))
    assert by_run[f"/api/runs/{b.run_id}/events"] == list(range(0, 300, 2))
    assert len(fake.requests) < 20


def test_a_client_that_is_closed_takes_nothing_more(fake: Fake) -> None:
    with Client(fake.url, on_error="ignore") as client, client.run("late") as run:
        pass
    run.log.info("too late")
    assert client.dropped == 1


async def test_an_event_loop_is_not_held_up(silent: str) -> None:
    client = AsyncClient(silent, timeout=600, on_error="ignore")
    async with client.run("lonely") as run:
        with run.step("think"):
            run.token("hm")
    await client.close(timeout=0.1)
    assert client.dropped == 4


def in_a_process(program: str, url: str) -> str:
    environment = {**os.environ, "RUNREEL_URL": url, "PYTHONPATH": str(SOURCE.resolve())}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout + done.stderr


def test_the_end_of_the_program_sends_what_is_left(fake: Fake) -> None:
    said = in_a_process(
        "import runreel\n"
        "client = runreel.Client(flush_interval=30)\n"
        "run = client.run('abrupt').__enter__()\n"
        "run.log.info('last words')\n",
        fake.url,
    )
    assert said == ""
    assert described(sent(fake)) == ["log.info"]


def test_the_end_of_the_program_does_not_wait_for_ever() -> None:
    said = in_a_process(
        # What is registered first is called last.
        "import atexit, time\n"
        "atexit.register(lambda: print('waited', time.monotonic() - ended))\n"
        "import runreel\n"
        "with runreel.Client().run('lonely') as run:\n"
        "    pass\n"
        "ended = time.monotonic()\n",
        NOWHERE,
    )
    waited = re.search(r"waited ([\d.]+)", said)
    assert waited is not None
    # A call may take 30 s, and is tried again.
    assert float(waited[1]) < 25
    assert "1 events were dropped" in said
    assert "Traceback" not in said


def test_a_forked_process_sends_its_own_and_only_its_own(fake: Fake) -> None:
    in_a_process(
        "import os, runreel, threading\n"
        "client = runreel.Client(flush_interval=0.3)\n"
        "with client.run('forks') as run:\n"
        "    run.event('custom.parent', {'n': 0})\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        run.event('custom.child', {'n': 1})\n"
        "        os._exit(0 if client.flush(20) and client.dropped == 0 else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    run.event('custom.parent', {'n': 2})\n",
        fake.url,
    )
    assert sorted(map(str, described(sent(fake)))) == ["0", "1", "2", "run.completed"]


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"a": [1, 2.5, "ö", None, True]}, {"a": [1, 2.5, "ö", None, True]}),
        ({"nan": math.nan, "inf": [math.inf]}, {"nan": None, "inf": [None]}),
        (
            {"nul": "a\0b", "lone": "a\ud800b", "escaped": "\\u0000"},
            {"nul": "ab", "lone": "a\ufffdb", "escaped": "\\u0000"},
        ),
        ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "null": "b", "(1, 2)": "c"}),
        ({"id": UUID(int=1), "path": Path("/x")}, {"id": str(UUID(int=1)), "path": "/x"}),
        ({"odd": {1}, "bytes": b"x", "type": int}, {"odd": "{1}", "bytes": "b'x'", "type": "<class 'int'>"}),
        (Unspeakable(), "<Unspeakable without a repr>"),
    ],
)
def test_any_object_becomes_json(value: Any, kept: Any) -> None:
    assert json.loads(encoded(value)) == kept


def test_what_nests_for_ever_is_cut() -> None:
    found = json.loads(encoded(CIRCLE))
    for _ in range(59):
        (found,) = found
    assert found == ["…"]
    assert encoded({"n": 10**5_000}).startswith(b'{"n":"0x')


def test_a_large_payload_keeps_its_shape() -> None:
    value = {"name": "search", "result": ["short", "x" * 100_000], "more": "ö" * 50_000}
    data = encoded(value)
    found = json.loads(data)
    assert len(data) <= PAYLOAD_BYTES
    assert (found["name"], found["result"][0], found["$truncated"]) == ("search", "short", True)
    assert found["$bytes"] == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    assert found["more"].startswith("ööö")
    assert found["more"].endswith("…")


@pytest.mark.parametrize("value", [list(range(50_000)), '"' * 200_000, {"\x01" * 90_000: 1}, "\x01" * 90_000])
def test_nothing_is_too_large_to_say_something_about(value: Any) -> None:
    data = encoded(value)
    assert len(data) <= PAYLOAD_BYTES
    assert json.loads(data)["$truncated"] is True


def test_a_copy_is_made_at_once(fake: Fake) -> None:
    state = {"n": 1}
    with Client(fake.url) as client, client.run("mutable") as run:
        run.event("custom.state", state)
        state["n"] = 2
    assert described(sent(fake))[0] == 1


def test_what_is_odd_reaches_the_real_server(server: Server) -> None:
    with server.client(on_error="raise") as client:
        with client.run("odd\0\ud800title", input={"nan": math.nan}, metadata={"x": "\0"}) as run:
            run.event("custom.odd", {"deep": CIRCLE, "nul": "\0", "lone": "\ud800", "big": "x" * 200_000})
            run.event("custom.list", [1, 2])
            run.event("custom.named", event_id="lone \ud800", span_id="lone \udfff")
            with run.message() as message:
                message.token("a\ud800b\0")
                message.token("x" * 20_000)
        assert client.get_run(run.run_id)["status"] == "completed"
        assert client.dropped == 0
