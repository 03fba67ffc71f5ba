"""Real exceptions, raised through the packages, as the log and the commands tell them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reading import one, said
from test_runner import queued, until

from conftest import BINARY, Server
from runreel import Client

FOLDER = Path(__file__).parent.parent / "met" / "exceptions"
CLIENT = Path(__file__).parent.parent.parent / "sdk/typescript/packages/client/dist/index.js"
TABLE: dict[str, str] = json.loads((FOLDER / "table.json").read_text())


@pytest.fixture(scope="module")
def runs(server: Server) -> dict[str, str]:
    """The runs by their names."""
    environment = {**os.environ, "RUNREEL_URL": server.url, "RUNREEL_CLIENT": CLIENT.as_uri()}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    raised: dict[str, str] = {}
    for command in ([sys.executable, "raised.py"], ["node", "raised.mjs"]):
        told = subprocess.run(command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        raised |= dict(line.split("\t") for line in told.stdout.splitlines())
    return raised


def runreel(server: Server, *words: str) -> str:
    environment = {**os.environ, "RUNREEL_URL": server.url, "NO_COLOR": "1"}
    return subprocess.run([BINARY, *words], env=environment, capture_output=True, text=True, check=True).stdout


def matches(told: str, expected: str) -> bool:
    return told.startswith(expected[:-1]) if expected.endswith("…") else told == expected


def shown(line: str) -> str:
    """As a terminal has it in one line."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).replace("\n", " ")


def test_each_is_there(runs: dict[str, str]) -> None:
    assert runs.keys() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_the_log_has_its_type_and_message(name: str, runs: dict[str, str], client: Client) -> None:
    for error in (client.get_run(runs[name])["error"], one(client, runs[name], "tool.failed").payload["error"]):
        assert matches(said(error), TABLE[name])


@pytest.mark.parametrize("name", TABLE)
def test_the_commands_show_its_type_and_message(name: str, runs: dict[str, str], server: Server) -> None:
    expected = shown(TABLE[name])
    ended = [line for line in runreel(server, "tail", runs[name]).splitlines() if " run.failed " in line]
    (told,) = (line.partition("error: ")[2] for line in ended)
    assert matches(told, expected)
    shows = runreel(server, "runs", "show", runs[name])
    first = next(line for line in shows.splitlines() if line.startswith("error "))
    assert matches(first.removeprefix("error").strip(), shown(TABLE[name].partition("\n")[0]))
    assert not re.search(r"\\n +(File|at) ", shows)


def errors_in(error: Any) -> Iterator[Any]:
    yield error
    for below in (error.get("cause"), *error.get("errors", ())):
        if below is not None:
            yield from errors_in(below)


def test_a_stack_says_where_it_happened_and_no_values_of_variables(runs: dict[str, str], client: Client) -> None:
    error = client.get_run(runs["python key"])["error"]
    assert re.search(r'raised\.py", line \d+, in key\n +print\(row\["customer_id"\]\)', error["stack"])
    assert "AC-1013" not in error["stack"]
    error = client.get_run(runs["javascript type"])["error"]
    assert re.match(r" +at typed \(file:.*raised\.mjs", error["stack"])
    assert "previous line repeated" in client.get_run(runs["python recursion"])["error"]["stack"].lower()
    assert client.get_run(runs["python notes"])["error"]["stack"].endswith("\n  while writing row 7")


def test_causes_and_members_of_groups_are_told_with_their_stacks(runs: dict[str, str], client: Client) -> None:
    for name, expected in {
        "python group": ["KeyError: 'customer_id'", "ValueError: invalid literal for int() with base 10: 'twelve'"],
        "python cause": ["KeyError: 'customer_id'"],
        "python context": ["ValueError: invalid literal for int() with base 10: 'twelve'"],
        "python http 429": [],
        "javascript cause": ["TypeError: Cannot read properties of undefined (reading 'customer_id')"],
        "javascript group": [
            "TypeError: Cannot read properties of undefined (reading 'customer_id')",
            "RangeError: row 7 of 3",
        ],
        "javascript fetch": ["Error: connect ECONNREFUSED 127.0.0.1:…"],
    }.items():
        below = list(errors_in(client.get_run(runs[name])["error"]))[1:]
        assert len(below) >= len(expected), name
        assert all(map(matches, map(said, below), expected)), name
        assert all(error["stack"] for error in below), name
    assert client.get_run(runs["javascript fetch"])["error"]["cause"]["code"] == "ECONNREFUSED"
    assert client.get_run(runs["python cause"])["error"]["code"] == "missing_account"


def test_the_commands_show_a_stack_as_lines(runs: dict[str, str], server: Server) -> None:
    for shows in (
        runreel(server, "runs", "show", runs["python cause"]),
        runreel(server, "tail", "--stacks", runs["python cause"]),
    ):
        assert re.search(r"\n +MissingAccountError: no report|\nerror +MissingAccountError: no report", shows)
        assert re.search(r'\n +File ".*raised\.py", line \d+, in caused\n', shows)
        assert re.search(r"\n +caused by KeyError: 'customer_id'\n +File", shows)


def test_a_command_of_a_runner_says_how_it_ended(server: Server, client: Client) -> None:
    run_id = queued(client, "broken-command")
    command = [BINARY, "runner", "--agent", "broken-command", "--exec", "echo 'no ledger' >&2; exit 3"]
    environment = {**os.environ, "RUNREEL_URL": server.url}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as runner:
        until(lambda: client.get_run(run_id)["status"] == "failed")
        runner.terminate()
    error = client.get_run(run_id)["error"]
    assert "3" in error["message"]
    assert error["message"] in runreel(server, "runs", "show", run_id)
