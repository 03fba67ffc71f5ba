"""AG-UI's own judges: the types of `ag-ui-protocol`, and the rules of `ag-ui-validate`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ag_ui.core import Event, RunAgentInput, RunFinishedEvent, UserMessage
from pydantic import TypeAdapter

from conftest import Server, serving

CONFIG = """
[tools.files]
root = "."

[tools.shell]
root = "."

[agents.speaker]
model = "script:speaker.toml"
tools = ["files"]

[agents.asker]
model = "script:asker.toml"
tools = ["shell"]
"""

SPEAKER = """
repeat = true
pace_ms = 5

[[turns]]
reasoning = "Let me look."
text = "I look what is there."
tool_calls = [{ name = "files_list", args = { path = "." } }]

[[turns]]
text = "There is a configuration, two scripts, and nothing else."
"""

ASKER = """
repeat = true

[[turns]]
text = "I would like to run it."
tool_calls = [{ name = "shell", args = { command = "echo done" } }]

[[turns]]
text = "It said: {tool}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agents")
    for name, text in [("runreel.toml", CONFIG), ("speaker.toml", SPEAKER), ("asker.toml", ASKER)]:
        (folder / name).write_text(text)
    yield from serving("--config", str(folder / "runreel.toml"))


def stream(server: Server, path: str, body: RunAgentInput | None = None) -> list[str]:
    """The data of a stream, which the server ends."""
    data = None if body is None else body.model_dump_json(by_alias=True, exclude_none=True).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        lines = response.read().decode().split("\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


def asking(thread: str, run: str) -> RunAgentInput:
    return RunAgentInput(
        thread_id=thread,
        run_id=run,
        state={},
        messages=[UserMessage(id="u1", role="user", content="what is there?")],
        tools=[],
        context=[],
        forwarded_props={},
    )


@pytest.mark.parametrize("agent", ["speaker", "asker"])
def test_the_validator_has_nothing_to_say(server: Server, agent: str, tmp_path: Path) -> None:
    address = f"{server.url}/api/agui/agents/{agent}"
    report = tmp_path / "report.json"
    words = [address, "--max-warnings", "0", "--fail-on", "warning", "--json-file", str(report)]
    command = [sys.executable, "-m", "ag_ui_validate.cli", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(report.read_text())
    assert (said["summary"]["errors"], said["summary"]["warnings"], said["internalErrors"]) == (0, 0, []), said
    assert said["features"]["backend-tool-rendering"] == "exercised", said


@pytest.mark.parametrize("agent", ["speaker", "asker"])
def test_every_event_is_one_of_the_protocol_for_whoever_begins_and_whoever_joins(server: Server, agent: str) -> None:
    begun = stream(server, f"/api/agui/agents/{agent}", asking(f"thread-{agent}", f"run-{agent}"))
    joined = stream(server, f"/api/agui/runs/run-{agent}")
    for data in [begun, joined]:
        events = [TypeAdapter(Event).validate_json(event) for event in data]
        kinds = [event.type.value for event in events]
        assert kinds[0] == "RUN_STARTED", kinds
        last = events[-1]
        assert isinstance(last, RunFinishedEvent), last
        assert last.outcome is not None
        assert last.outcome.type == ("interrupt" if agent == "asker" else "success")
        for event, written in zip(events, data, strict=True):
            # Nothing is left out and nothing is added: what the types read is what was sent.
            assert event.model_dump(mode="json", by_alias=True, exclude_none=True) == json.loads(written)
    assert "MESSAGES_SNAPSHOT" not in "".join(begun)
    assert "MESSAGES_SNAPSHOT" in "".join(joined)
