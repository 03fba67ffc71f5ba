"""OpenAI's own client against a real server: streams that are cut anywhere, a server that is killed, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from conftest import JwtServer, Server, serving


def client(url: str, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def run_of(response: Any) -> str:
    return str(response.id).removeprefix("resp_")


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


class Producer:
    """Whoever executes the run, an emission at a time."""

    def __init__(self, url: str, run_id: str) -> None:
        self._url = f"{url}/api/runs/{run_id}/events"

    def emit(self, *events: dict[str, Any]) -> None:
        httpx2.post(self._url, json=list(events), trust_env=False).raise_for_status()


def begun() -> list[dict[str, Any]]:
    return [{"type": "run.started"}]


def pieces(span: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    for text in texts:
        yield {"type": "message.delta", "span_id": span, "payload": {"text": text}}
    content = [{"type": "text", "text": "".join(texts)}]
    yield {"type": "message.completed", "span_id": span, "payload": {"content": content}}


CALL = [
    {"type": "tool.started", "span_id": "c", "payload": {"name": "weather", "args": {"city": "Rome"}}},
    {"type": "tool.completed", "span_id": "c", "payload": {"name": "weather", "result": "sun"}},
]
FIRST = ["I ", "loök ", "😀."]
SECOND = ["It ", "is ", "sunny ", "in ", "Rome."]


def story() -> Iterator[list[dict[str, Any]]]:
    yield begun()
    for event in pieces("m1", FIRST):
        yield [event]
    yield CALL
    for event in pieces("m2", SECOND):
        yield [event]
    yield [{"type": "run.completed", "payload": {"output": "sunny"}}]


# How many events each step of the story is said with. The first has those of the creation, too.
EVENTS = [3, 3, 1, 1, 3, 5, 3, 1, 1, 1, 1, 3, 1]


def test_a_response_that_is_cut_after_every_event_while_it_is_written_is_read_once(server: Server) -> None:
    ai = client(server.url)
    response = ai.responses.create(model="helper", input="weather?", background=True)
    assert response.status == "queued"
    assert response.background
    producer = Producer(server.url, run_of(response))
    seen: list[Any] = []
    for step, count in zip(story(), EVENTS, strict=True):
        producer.emit(*step)
        for _ in range(count):
            # A connection for each event, live: the next one goes on after it, in the middle of a text, too.
            after = {"starting_after": seen[-1].sequence_number} if seen else {}
            with ai.responses.retrieve(response.id, stream=True, **after) as stream:
                seen.append(next(iter(stream)))
    numbers = [event.sequence_number for event in seen]
    assert numbers == sorted(set(numbers))
    assert seen[-1].type == "response.completed"
    assert text_of(seen) == seen[-1].response.output_text == "".join(FIRST + SECOND)
    assert sum(1 for event in seen if event.type == "response.output_text.delta") == len(FIRST + SECOND)
    # When it is over, too: what follows is the same, but that a text's rest comes in one piece.
    whole = list(ai.responses.retrieve(response.id, stream=True))
    for n, event in enumerate(seen):
        rest = list(ai.responses.retrieve(response.id, stream=True, starting_after=event.sequence_number))
        assert text_of(seen[: n + 1]) + text_of(rest) == text_of(whole), f"after event {n}"
        assert all(other.sequence_number > event.sequence_number for other in rest)
        followed = [other.type for other in seen[n + 1 :] if not other.type.endswith(".delta")]
        assert [other.type for other in rest if not other.type.endswith(".delta")] == followed, f"after event {n}"


def test_a_server_that_is_killed_in_the_middle_loses_nothing_that_was_stored(restartable: Server) -> None:
    ai = client(restartable.url)
    begun_at = ai.responses.create(model="helper", input="weather?", background=True)
    producer = Producer(restartable.url, run_of(begun_at))
    steps = list(story())
    seen: list[Any] = []
    with pytest.raises(openai.APIConnectionError):
        producer.emit(*steps[0])
        for event in ai.responses.retrieve(begun_at.id, stream=True):
            seen.append(event)
            if event.type == "response.in_progress":
                producer.emit(*steps[1])
            if event.type == "response.output_text.delta":
                restartable.kill()
    assert text_of(seen) == FIRST[0]
    restartable.start()
    # The producer has its text still and says it whole; the reader needs only the rest.
    producer = Producer(restartable.url, run_of(begun_at))
    producer.emit(*list(pieces("m1", FIRST))[-1:], *CALL)
    for step in steps[6:]:
        producer.emit(*step)
    last = seen[-1].sequence_number
    rest = list(ai.responses.retrieve(begun_at.id, stream=True, starting_after=last))
    assert all(event.sequence_number > last for event in rest)
    assert text_of(seen + rest) == "".join(FIRST + SECOND)
    assert rest[-1].type == "response.completed"


def test_a_created_stream_is_read_live_and_its_last_event_has_the_whole_response(server: Server) -> None:
    ai = client(server.url)
    seen: list[Any] = []
    with ai.responses.create(model="helper", input="hi", stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.created":
                assert event.response.status == "queued"
                producer = Producer(server.url, run_of(event.response))
                for step in story():
                    producer.emit(*step)
    assert seen[-1].response == ai.responses.retrieve(seen[0].response.id)
    call = next(item for item in seen[-1].response.output if item.type == "mcp_call")
    assert (call.name, call.arguments, call.output, call.status) == ("weather", '{"city":"Rome"}', "sun", "completed")


def test_a_client_that_leaves_does_not_stop_the_run(server: Server) -> None:
    ai = client(server.url)
    with ai.responses.create(model="helper", input="hi", stream=True) as stream:
        response = next(iter(stream)).response  # type: ignore[union-attr]
    producer = Producer(server.url, run_of(response))
    for step in story():
        producer.emit(*step)
    assert ai.responses.retrieve(response.id).status == "completed"


def test_a_response_is_cancelled_and_deleted(server: Server) -> None:
    ai = client(server.url)
    response = ai.responses.create(model="helper", input="hi", background=True, metadata={"ticket": "7"})
    assert ai.responses.cancel(response.id).status == "cancelled"
    assert ai.responses.retrieve(response.id).metadata == {"ticket": "7"}
    ai.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        ai.responses.retrieve(response.id)


def test_a_response_that_is_cancelled_in_the_middle_of_a_text_keeps_what_was_written(server: Server) -> None:
    ai = client(server.url)
    response = ai.responses.create(model="helper", input="hi", background=True)
    producer = Producer(server.url, run_of(response))
    producer.emit(*begun())
    seen: list[Any] = []
    for event in ai.responses.retrieve(response.id, stream=True):
        seen.append(event)
        if event.type == "response.in_progress":
            producer.emit(*list(pieces("m1", FIRST))[:1])
        if event.type == "response.output_text.delta":
            ai.responses.cancel(response.id)
    numbers = [event.sequence_number for event in seen]
    assert numbers == sorted(set(numbers))
    assert [event.type for event in seen[-2:]] == ["response.output_item.done", "response.incomplete"]
    assert seen[-2].item.status == "incomplete"
    assert text_of(seen) == seen[-2].item.content[0].text == FIRST[0]
    assert seen[-1].response.status == "cancelled"


def test_a_run_that_fails_is_a_response_that_failed(server: Server) -> None:
    ai = client(server.url)
    response = ai.responses.create(model="helper", input="hi", background=True)
    failed = {"type": "run.failed", "payload": {"error": {"message": "out of credit"}}}
    Producer(server.url, run_of(response)).emit({"type": "run.started"}, failed)
    last = list(ai.responses.retrieve(response.id, stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "out of credit"


def test_what_the_client_asked_is_listed(server: Server) -> None:
    ai = client(server.url)
    response = ai.responses.create(model="helper", input="hi", background=True)
    items = list(ai.responses.input_items.list(response.id))
    assert [item.content[0].text for item in items] == ["hi"]  # type: ignore[union-attr]


def test_the_pages_example_does_what_it_says(tmp_path: Path) -> None:
    page = Path(__file__).parent / "../../docs/protocols/openai-responses.md"
    example = page.read_text().split("<!-- runs -->\n```python\n")[1].split("\n```")[0]
    (tmp_path / "runreel.toml").write_text('[agents.parrot]\nmodel = "echo"\n')
    for server in serving("--config", str(tmp_path / "runreel.toml")):
        environment = {**os.environ, "RUNREEL_URL": server.url}
        said = subprocess.run(
            [sys.executable, "-c", example], check=False, env=environment, capture_output=True, text=True
        )
        assert said.stdout.splitlines() == ["echo: Hello!", "echo: And again!"], said.stderr


def test_errors_have_the_types_that_the_client_knows(jwt_server: JwtServer) -> None:
    mine, theirs = (client(jwt_server.url, jwt_server.token(subject)) for subject in ("alice", "bob"))
    response = mine.responses.create(model="helper", input="hi", background=True)
    with pytest.raises(openai.NotFoundError) as foreign:
        theirs.responses.retrieve(response.id)
    assert foreign.value.code == "not_found"
    with pytest.raises(openai.AuthenticationError):
        client(jwt_server.url, "nobody").responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        mine.responses.create(model="helper", input="hi", instructions="Be brief.")
    assert (refused.value.param, refused.value.code) == ("instructions", "invalid_request")
    with pytest.raises(openai.ConflictError):
        mine.responses.delete(response.id)
    with pytest.raises(openai.ConflictError):
        list(mine.responses.retrieve(response.id, stream=True, starting_after=1 << 30))
    with pytest.raises(openai.BadRequestError):
        list(mine.responses.retrieve(response.id, stream=True, starting_after=1 << 40))
