"""Commands of docs/tasks with what else than the page's own example they meet."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/tasks/failed-runs.md"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": "out of credit"}, "out of credit"),
        ({"error": {"message": "out of credit"}}, "out of credit"),
        ({"error": {"type": "KeyError", "message": "'id'", "stack": "at a"}}, "KeyError: 'id'"),
        ({"error": {"type": "AssertionError", "message": ""}}, "AssertionError"),
        ({"error": {"type": None, "message": "out of credit"}}, "out of credit"),
        ({"error": {"code": "lease_lost"}}, "lease_lost"),
        ({"error": {"message": {"a": 1}}}, '{"message":{"a":1}}'),
        ({"error": 7}, "7"),
        ({"error": ["a"]}, '["a"]'),
        ({"error": None}, '{"error":null}'),
        ({"message": "out of credit"}, "out of credit"),
        ({}, "{}"),
        ({"$artifact": {"size": 90_000}, "preview": "x"}, '{"$artifact":{"size":90000},"preview":"x"}'),
    ],
)
def test_the_filter_of_failed_runs_prints_every_form_of_an_error(payload: Any, expected: str) -> None:
    found = re.search(r"^said='(.*?)'$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    lines = [{"type": "stream.caught_up"}, {"type": "run.failed", "run_id": "r1", "payload": payload}]
    text = "\n".join(map(json.dumps, lines))
    told = subprocess.run(["jq", "-r", found[1]], input=text, capture_output=True, text=True, check=True)
    assert told.stdout == f"r1 {expected}\n"
