"""The AG-UI endpoints of docs/tasks/frameworks-python.md, as they are printed, behind an agent of the kind `agui`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import models
import pytest
from test_in_the_program import ENVIRONMENTS, PAGE

from conftest import serving
from runreel import Event, RunRecord


@contextmanager
def endpoint(name: str, folder: Path) -> Iterator[str]:
    """The address of a framework's own AG-UI server."""
    found = re.search(rf"<!-- app: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (folder / "app.py").write_text(found[1])
    words = [ENVIRONMENTS / name / "bin/python", "-m", "uvicorn", "app:app", "--port", "0", "--app-dir", folder]
    with models.serving() as address:
        environment = {**os.environ, **models.environment(address)}
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if running := re.search(r"running on (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(said))
        try:
            yield f"{running[1]}/agui"
        finally:
            process.terminate()
            process.communicate(timeout=30)


def asked(name: str, folder: Path) -> tuple[RunRecord, list[Event]]:
    """A run of the endpoint and what its reader saw."""
    with endpoint(name, folder) as url:
        config = folder / "runreel.toml"
        config.write_text(f'[agents.forecaster]\nkind = "agui"\nurl = "{url}"\n')
        for server in serving("--config", str(config)):
            with server.client(on_error="raise") as client:
                message = {"role": "user", "content": "How is Rome?"}
                body = {"agent": "forecaster", "start": False, "input": {"messages": [message]}}
                run = client._transport.request("POST", "/api/runs", json=body)
                seen = list(client.stream(run["run_id"]))
                return client.get_run(run["run_id"]), seen
    raise AssertionError("no server")


@pytest.mark.parametrize("name", ["adk", "agno", "crewai"])
def test_an_endpoint_is_recorded_as_it_answers(name: str, tmp_path: Path) -> None:
    record, seen = asked(name, tmp_path)
    assert record["status"] == "completed"
    durable = [event for event in seen if event.seq is not None]
    assert [event.seq for event in durable] == list(range(1, len(durable) + 1))
    answers = [event for event in durable if event.type == "message.completed"]
    assert (answers[0].text, answers[-1].text) == ("How is Rome?", "It is sunny in Rome.")
    assert record["output"] == {"response": "It is sunny in Rome."}
    if name == "crewai":
        # Its flow has a step, and no tool.
        assert {"step.started", "step.completed"} <= {event.type for event in durable}
        return
    tools = [event for event in durable if event.type.startswith("tool.")]
    assert [event.type for event in tools] == ["tool.started", "tool.completed"]
    assert (tools[0].payload["name"], tools[0].payload["args"]) == ("weather", {"city": "Rome"})
    assert "sunny" in str(tools[1].payload["result"])
