"""Leases: a program that lives keeps its run alive, and one that was killed leaves it stalled."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

import runreel
from conftest import Server

SOURCE = Path(runreel.__file__).parent.parent
LEASE_MS = 1_500

PROGRAM = f"""
import sys, time, runreel
client = runreel.Client(sys.argv[1])
with client.run("long", lease_ms={LEASE_MS}) as run:
    print(run.run_id, flush=True)
    time.sleep(60)
"""


def stalled(client: runreel.Client, run_id: str) -> bool:
    return bool(client.get_run(run_id)["stalled"])


def test_a_program_that_is_silent_keeps_its_lease_and_a_killed_ones_is_stalled(server: Server) -> None:
    with server.client() as client:
        command, environment = [sys.executable, "-c", PROGRAM, server.url], {**os.environ, "PYTHONPATH": str(SOURCE)}
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert program.stdout is not None
        run_id = program.stdout.readline().strip()
        until = time.monotonic() + 3 * LEASE_MS / 1_000
        while time.monotonic() < until:
            assert not stalled(client, run_id)
            time.sleep(0.1)
        program.kill()
        program.wait()
        killed = time.monotonic()
        while not stalled(client, run_id):
            assert time.monotonic() < killed + 60
            time.sleep(0.05)
        assert run_id in [run["run_id"] for run in client.list_runs() if run["stalled"]]
        # Whoever goes on with it ends it.
        with client.attach(run_id):
            pass
        assert client.get_run(run_id)["status"] == "completed"


def test_every_run_has_a_lease_unless_its_program_wants_none(server: Server) -> None:
    with server.client() as client, client.run("a") as leased, client.run("b", lease_ms=None) as free:
        found = [client.get_run(run.run_id)["lease_ms"] for run in (leased, free)]
    assert found == [30_000, None]


@pytest.mark.asyncio
async def test_a_run_of_an_event_loop_has_one_too(server: Server) -> None:
    async with runreel.AsyncClient(server.url) as client, client.run("a") as run:
        assert (await client.get_run(run.run_id))["lease_ms"] == 30_000


def test_a_run_that_began_while_the_server_was_away_began_when_it_began(restartable: Server) -> None:
    restartable.stop()
    with restartable.client() as client:
        run = client.run("late")
        began = time.time()
        with run.step("plan"):
            time.sleep(1.5)
        restartable.start()
        run.complete()
        client.flush()
        told = client.get_run(run.run_id)
        summary = client.timeline(run.run_id)["summary"]
    assert 1_400 < summary["total_ms"] < 20_000
    assert told["started_at"] is not None
    started = datetime.fromisoformat(told["started_at"].replace("Z", "+00:00")).timestamp()
    assert abs(started - began) < 0.5
