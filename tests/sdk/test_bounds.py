"""What a host can count on whatever happens: bounded memory, bounded work, no threads left behind."""

from __future__ import annotations

import gc
import json
import threading
import time

import pytest
from test_batching import NOWHERE, described, in_a_process, sent

from conftest import Fake
from runreel import Client
from runreel._payload import encoded


def test_runs_are_bounded_as_their_events_are(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(NOWHERE, max_queue_events=100, max_queue_bytes=1_048_576)
    for _ in range(300):
        with client.run("big", input="x" * 20_000) as run:
            run.output = "y" * 20_000
    assert client._sender._outbox.bytes <= 1.5 * 1_048_576
    assert client._sender._outbox.events <= 150
    # What is queued is there from its beginning to its end; the first creation is on its way.
    queued = [[type(item).__name__ for item in queue] for queue in client._sender._outbox._queues.values()]
    assert queued == [["Emission"], *([["Create", "Emission"]] * (len(queued) - 1))]
    assert client.dropped == 2 * (300 - len(queued))
    assert caplog.text.count("the queue is full") == 1
    assert run.ended
    client.close(timeout=0)


def test_a_run_whose_end_has_no_room_is_dropped_whole() -> None:
    client = Client(NOWHERE, max_queue_bytes=100_000, on_error="ignore")
    runs = [client.run(f"r{n}") for n in range(10)]
    for run in runs:
        run.log.info("begun")
    for run in runs:
        run.complete("y" * 40_000)
    outbox = client._sender._outbox
    assert outbox.bytes <= 150_000
    kept = [[type(item).__name__ for item in queue] for queue in outbox._queues.values()]
    # The first creation may be on its way.
    assert all(names[-2:] == ["Emission", "Emission"] for names in kept)
    # Of each other run: its line and its end.
    assert client.dropped == 2 * (10 - len(kept))
    client.close(timeout=0)


def test_a_flush_does_not_wait_for_a_run_that_was_dropped() -> None:
    client = Client(NOWHERE, max_queue_bytes=2_000, on_error="ignore", flush_interval=60)
    with client._sender._wake:
        run = client.run("short")
        run.log.info("begun")
        flush = client._sender.flush(patient=True)
        run.complete("y" * 40_000)
        assert client._sender._outbox.events == 0
    assert flush.result(5)
    client.close(timeout=0)


def test_a_forgotten_client_leaves_no_thread(fake: Fake) -> None:
    clients = [Client(fake.url) for _ in range(5)]
    for client in clients:
        with client.run("brief"):
            pass
    threads = [client._sender._thread for client in clients]
    del client
    clients.clear()
    gc.collect()
    for thread in threads:
        assert isinstance(thread, threading.Thread)
        thread.join(10)
        assert not thread.is_alive()


def test_what_a_forgotten_client_had_queued_is_sent(fake: Fake) -> None:
    client = Client(fake.url, flush_interval=0.3)
    run = client.run("brief")
    run.log.info("last words")
    del client, run
    gc.collect()
    fake.wait_for(2)
    assert described(sent(fake)) == ["log.info"]


def test_a_child_of_multiprocessing_sends_what_it_has(fake: Fake) -> None:
    said = in_a_process(
        "import multiprocessing, runreel\n"
        "client = runreel.Client(flush_interval=30)\n"
        "def work():\n"
        "    run.log.info('in the child')\n"
        "with client.run('pool') as run:\n"
        "    child = multiprocessing.get_context('fork').Process(target=work)\n"
        "    child.start()\n"
        "    child.join()\n",
        fake.url,
    )
    assert said == ""
    assert described(sent(fake)) == ["log.info", "run.completed"]


@pytest.mark.parametrize(
    "value",
    [
        [{"id": n, "name": "x", "ok": True} for n in range(100_000)],
        {"rows": [["a", n] for n in range(100_000)]},
        [[], *([[[]]] * 100_000)],
    ],
)
def test_a_structure_without_end_is_cut_at_once(value: object) -> None:
    began = time.process_time()
    found = json.loads(encoded(value))
    assert time.process_time() - began < 1
    assert found["$truncated"] is True
    assert found["$head"].startswith("[" if isinstance(value, list) else "{")
    assert found["$bytes"] == len(json.dumps(value, separators=(",", ":")))
