"""An export, verified by nothing but this file: the head that it states is the hash of what it tells."""

from __future__ import annotations

import hashlib
import json
import struct
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

from conftest import Server

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TEXTS = ("type", "role", "agent", "span_id", "parent_span_id", "event_id")


def text(value: str | None) -> bytes:
    return b"\xff" * 4 if value is None else struct.pack(">I", len(value.encode())) + value.encode()


def head_of(lines: list[str]) -> str:
    """The head of a run: its line, then one for each of its events."""
    run_id = uuid.UUID(json.loads(lines[0])["run"]["run_id"]).bytes
    link = bytes(32)
    for line in lines[1:]:
        event = json.loads(line)["event"]
        # The payload is the last member, and its own text counts: 1.50 is another payload than 1.5.
        payload = line[line.index(',"payload":') + len(',"payload":') : -2]
        at = (datetime.fromisoformat(event["at"].replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1)
        texts = b"".join(text(event.get(name)) for name in TEXTS)
        content = hashlib.sha256(b"\x01" + texts + struct.pack(">q", at) + text(payload)).digest()
        link = hashlib.sha256(b"\x02" + link + run_id + struct.pack(">q", event["seq"]) + content).digest()
    return link.hex()


def test_a_third_party_computes_the_head_of_an_export(server: Server) -> None:
    def ask(path: str, body: object = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return str(answer.read().decode())

    run_id = json.loads(ask("/api/runs", {"agent": "näme", "title": "t"}))["run_id"]
    events = [
        {"type": "tool.started", "span_id": "s", "payload": {"name": "grep", "n": 1.5}},
        {"type": "tool.completed", "span_id": "s", "event_id": "key", "payload": {"text": "\u2028 ü \U0001f600"}},
        {"type": "log.info", "at": "2026-01-01T00:00:00.000001Z", "payload": {"inner": {"payload": {"a": 1}}}},
    ]
    ask(f"/api/runs/{run_id}/events", events)
    *lines, end = ask(f"/api/runs/{run_id}/export").splitlines()
    found = json.loads(ask(f"/api/runs/{run_id}/verify"))
    assert found["state"] == "verified"
    assert json.loads(end)["end"]["head"] == found["head"] == head_of(lines)
    for edited in (lines[:-1], [*lines[:3], lines[3].replace("1.5", "1.50"), *lines[4:]]):
        assert head_of(edited) != found["head"]
