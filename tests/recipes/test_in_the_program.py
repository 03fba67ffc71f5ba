"""The programs of docs/tasks/frameworks-python.md, as they are printed, with a model that needs no network."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import models
import pytest

from conftest import Server
from runreel import Client, Event

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tasks/frameworks-python.md").read_text()
ENVIRONMENTS = Path(os.environ.get("RUNREEL_RECIPES", ROOT / ".tools/recipes"))

pytest_plugins = ["conftest"]


def blocks(name: str) -> list[str]:
    """The program of a recipe, and what continues it."""
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```(.*?)(?=\n## |\Z)", PAGE, re.DOTALL)
    assert found is not None
    continued = re.findall(r"<!-- continued -->\n```python\n(.*?)```", found[2], re.DOTALL)
    return [found[1], *continued]


@pytest.fixture(scope="session")
def model() -> Iterator[dict[str, str]]:
    with models.serving() as address:
        yield models.environment(address)


def run(name: str, server: Server, model: dict[str, str]) -> tuple[Client, str, list[Event]]:
    environment = {**os.environ, **model, "RUNREEL_URL": server.url, "PYTHONPATH": str(ROOT / "sdk/python/src")}
    program = "\n".join(blocks(name))
    done = subprocess.run(
        [ENVIRONMENTS / name / "bin/python", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    client = server.client(on_error="raise")
    run_id = next(client.list_runs(agent="forecaster"))["run_id"]
    return client, run_id, list(client.events(run_id))


@pytest.mark.parametrize("name", ["adk", "crewai", "agno"])
def test_a_recipe_records_the_question_the_tool_and_the_answer(
    name: str, server: Server, model: dict[str, str]
) -> None:
    client, run_id, events = run(name, server, model)
    with client:
        record = client.get_run(run_id)
        assert (record["status"], record["output"]) == ("completed", "It is sunny in Rome.")
        asked = [event.text for event in events if event.payload.get("role") == "user"] + [record["input"]]
        assert "How is Rome?" in asked
        tools = [event for event in events if event.type.startswith("tool.")]
        assert [event.type for event in tools] == ["tool.started", "tool.completed"]
        assert tools[0].payload == {"name": "weather", "args": {"city": "Rome"}}
        assert "sunny" in str(tools[1].payload["result"])
        assert tools[0].span_id == tools[1].span_id
        answers = [event for event in events if event.type == "message.completed" and event.payload["role"] != "user"]
        assert answers[-1].text == "It is sunny in Rome."
        # It was written piece by piece: one that comes whole has no duration.
        assert "duration_ms" in answers[-1].payload
        used = answers[-1].payload["usage"]
        assert used in ({"input_tokens": 9, "output_tokens": 5}, {"total_tokens": 28})


@pytest.mark.parametrize("name", ["adk", "crewai", "agno"])
def test_a_recipe_is_at_most_thirty_lines(name: str) -> None:
    assert len(blocks(name)[0].splitlines()) <= 30
