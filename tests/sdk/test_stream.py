"""Streams that are cut, in every way there is, on a fake server and on a real one."""

from __future__ import annotations

import json
import threading
from contextlib import aclosing, closing
from itertools import islice, pairwise
from typing import Any

import pytest

from conftest import Fake, Server
from runreel import ApiError, AsyncClient, Client, ConnectionFailed, Event, RunreelError, StreamGap, _follow
from runreel._sse import Frame, Parser

RUN = "01a20078-18af-7545-b69e-87c0ab9f3405"


def frame(seq: int, type: str = "log.info", run_id: str = RUN, cursor: str | None = None, **payload: Any) -> str:
    envelope = {"run_id": run_id, "seq": seq, "type": type, "role": "agent", "agent": None, "payload": payload}
    return f"id: {cursor or seq}\nevent: {type}\ndata: {json.dumps(envelope)}\n\n"


def control(name: str, **data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


SOON = "retry: 1\n\n"
END = control("stream.end", last_seq=3, status="completed")


def reader(fake: Fake, **settings: Any) -> Client:
    return Client(fake.url, **settings)


def seqs(events: Any) -> list[int | None]:
    return [event.seq for event in events]


CORPUS: list[tuple[bytes, list[Frame]]] = [
    (b"data: a\n\n", [Frame("message", "a")]),
    (b"data:a\r\rdata:b\r\n\r\ndata: c\n\n", [Frame("message", "a"), Frame("message", "b"), Frame("message", "c")]),
    (b"\xef\xbb\xbfid: 1\nevent: x\ndata: \xc3\xb6\n\n", [Frame("x", "ö", "1")]),
    (b"data\ndata: \ndata:  two spaces\n\n", [Frame("message", "\n\n two spaces")]),
    (b": a comment\n\n: ping\n\n", []),
    (b"event: only a name\n\ndata: x\n\n", [Frame("message", "x")]),
    (b"id: 7\ndata: x\n\ndata: y\n\n", [Frame("message", "x", "7"), Frame("message", "y")]),
    (b"id: a\0b\ndata: x\n\n", [Frame("message", "x")]),
    (b"retry: 25\nretry: soon\nunknown: x\ndata: x\n\n", [Frame("message", "x")]),
    ("data: a\u2028b\x85c\x0bd\n\n".encode(), [Frame("message", "a\u2028b\x85c\x0bd")]),
    (b"data: cut off\n", []),
]


@pytest.mark.parametrize(("text", "frames"), CORPUS)
def test_frames_are_read_however_they_are_cut(text: bytes, frames: list[Frame]) -> None:
    assert list(Parser().feed(text)) == frames
    for size in range(1, len(text) + 1):
        parser = Parser()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [found for piece in pieces for found in parser.feed(piece)] == frames


def test_the_wait_a_server_asks_for_is_kept() -> None:
    parser = Parser()
    assert list(parser.feed(b"retry: 25\r\n\r\n")) == []
    assert parser.retry_ms == 25


def test_a_stream_resumes_where_it_was_cut(fake: Fake) -> None:
    fake.streams(SOON + frame(1) + frame(2), then="cut").streams(frame(3) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2, 3]
    first, second = fake.requests
    assert "last-event-id" not in first.headers
    assert second.headers["last-event-id"] == "2"


@pytest.mark.parametrize("then", ["ends", "cut"])
def test_a_frame_that_was_cut_in_two_is_read_again(fake: Fake, then: str) -> None:
    fake.streams(SOON + frame(1) + frame(2)[:-1], then=then).streams(frame(2) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2]
    assert fake.requests[1].headers["last-event-id"] == "1"


def test_no_event_comes_twice(fake: Fake) -> None:
    fake.streams(SOON + frame(1) + frame(2), then="cut").streams(frame(1) + frame(2) + frame(3) + frame(3) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2, 3]


def test_a_server_that_is_busy_is_asked_again_when_it_says(fake: Fake) -> None:
    fake.refuses(429, "busy", Retry_After="0").streams(SOON + frame(1), then="cut")
    fake.refuses(503, "unavailable", Retry_After="0").hangs_up().answers(502, b"<html>").streams(frame(2) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2]
    assert len(fake.requests) == 6


def test_a_stream_ends_when_the_run_has_ended_meanwhile(fake: Fake) -> None:
    fake.streams(SOON + frame(1), then="cut").answers(204)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1]


@pytest.mark.parametrize("away", ["stream.draining", "stream.reset"])
def test_a_server_that_sends_its_readers_away_is_come_back_to(fake: Fake, away: str) -> None:
    fake.streams(frame(1) + control(away, retry_ms=1)).streams(frame(2) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2]


def test_a_refusal_ends_a_stream(fake: Fake) -> None:
    fake.streams(SOON + frame(1), then="cut").refuses(409, "cursor_ahead")
    with reader(fake) as client, pytest.raises(ApiError, match="cursor_ahead"):
        list(client.stream(RUN))


def test_an_address_where_nobody_ever_was_is_an_error() -> None:
    with Client("http://127.0.0.1:1", retries=0) as client, pytest.raises(ConnectionFailed):
        list(client.stream(RUN))


def test_what_is_no_stream_is_not_taken_for_one(fake: Fake) -> None:
    fake.answers(200, b"<html>welcome</html>", Content_Type="text/html")
    with reader(fake) as client, pytest.raises(RunreelError, match="is this a Runreel server"):
        list(client.stream(RUN))


def test_a_gap_is_said(fake: Fake) -> None:
    fake.streams(SOON + control("stream.gap", first_seq=5, requested_after=2) + frame(5) + END)
    with reader(fake) as client, pytest.raises(StreamGap) as gap:
        list(client.stream(RUN, after=2))
    assert (gap.value.requested_after, gap.value.first_seq) == (2, 5)
    assert str(gap.value) == "events after 2 were deleted; the log continues with 5"
    assert fake.requests[0].headers["last-event-id"] == "2"


def test_a_gap_can_be_passed_over(fake: Fake) -> None:
    fake.streams(SOON + control("stream.gap", first_seq=5, requested_after=2) + frame(5) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN, after=2, on_gap="continue")) == [5]


def test_a_peer_that_says_nothing_is_left(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_follow, "SILENCE", 0.2)
    fake.streams(SOON + frame(1), then="hangs").streams(frame(2) + END)
    with reader(fake) as client:
        assert seqs(client.stream(RUN)) == [1, 2]
    assert fake.requests[1].headers["last-event-id"] == "1"


def test_texts_and_their_pieces_are_no_place_to_resume_from(fake: Fake) -> None:
    delta = {
        "run_id": RUN,
        "seq": None,
        "type": "message.delta",
        "span_id": "m1",
        "payload": {"text": "d", "offset": 5},
    }
    snapshot = {"run_id": RUN, "span_id": "m1", "offset": 5, "text": "Hello", "type": "message.delta", "role": "agent"}
    live = control("message.snapshot", **snapshot) + control("message.delta", **delta)
    fake.streams(SOON + frame(1) + live, then="cut").streams(END)
    with reader(fake) as client:
        _, text, piece = client.stream(RUN)
    assert (text.type, text.seq, text.text, text.payload["offset"]) == ("message.snapshot", None, "Hello", 5)
    assert text.payload["type"] == "message.delta"
    assert (piece.type, piece.seq, piece.text, piece.payload["offset"], piece.id) == (
        "message.delta",
        None,
        "d",
        5,
        None,
    )
    assert fake.requests[1].headers["last-event-id"] == "1"


def test_a_feed_resumes_from_its_cursor(fake: Fake) -> None:
    other = RUN[:-1] + "6"
    caught_up = control("stream.caught_up", cursor="p9", last_seq=None)
    fake.streams(SOON + frame(1, cursor="p3") + frame(1, run_id=other, cursor="p4"), then="cut")
    fake.streams(caught_up, then="cut").streams(frame(2, cursor="p12"))
    with reader(fake) as client, closing(client.stream_all(types=["log.*", "run.failed"], tail=5)) as events:
        found = list(islice(events, 3))
    assert [(event.run_id, event.seq, event.id) for event in found] == [
        (RUN, 1, "p3"),
        (other, 1, "p4"),
        (RUN, 2, "p12"),
    ]
    assert fake.requests[0].path == "/api/stream/runs?types=log.%2A%2Crun.failed&tail=5"
    assert [seen.headers.get("last-event-id") for seen in fake.requests] == [None, "p4", "p9"]


async def test_an_event_loop_resumes_where_it_was_cut(fake: Fake) -> None:
    fake.streams(SOON + frame(1) + frame(2)[:9], then="cut").refuses(503, "unavailable", Retry_After="0")
    fake.hangs_up().streams(frame(1) + frame(2), then="ends").streams(frame(3) + END)
    async with AsyncClient(fake.url) as client:
        assert [event.seq async for event in client.stream(RUN)] == [1, 2, 3]
    assert [seen.headers.get("last-event-id") for seen in fake.requests] == [None, "1", "1", "1", "2"]


async def test_an_event_loop_is_told_of_gaps_and_refusals(fake: Fake) -> None:
    fake.streams(SOON + control("stream.gap", first_seq=None, requested_after="p5")).refuses(404, "not_found")
    async with AsyncClient(fake.url) as client:
        with pytest.raises(StreamGap, match="p5"):
            [event async for event in client.stream_thread("t/1", after="p5")]
        with pytest.raises(ApiError, match="not_found"):
            [event async for event in client.stream(RUN)]
    assert fake.requests[0].path == "/api/stream/threads/t%2F1"


async def test_an_event_loop_leaves_a_peer_that_says_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_follow, "SILENCE", 0.2)
    fake.streams(SOON + frame(1), then="hangs").streams(END)
    async with AsyncClient(fake.url) as client:
        assert [event.seq async for event in client.stream(RUN)] == [1]


def test_a_reader_outlives_a_killed_server(restartable: Server) -> None:
    with restartable.client() as client:
        seen: list[Event] = []
        with client.run("long") as run:
            reading = threading.Thread(target=lambda: seen.extend(client.stream(run.run_id)))
            reading.start()
            for n in range(10):
                run.event("custom.counted", {"n": n})
            assert client.flush()
            restartable.kill()
            for n in range(10, 20):
                run.event("custom.counted", {"n": n})
            restartable.start()
            assert client.flush(60)
        reading.join(60)
        assert client.dropped == 0
    assert seqs(seen) == list(range(1, 24))
    assert [event.payload["n"] for event in seen if event.type == "custom.counted"] == list(range(20))


def test_a_thread_is_followed_through_its_runs(client: Client) -> None:
    with closing(client.stream_thread("followed", types=["run.completed"])) as events:
        for _ in range(2):
            with client.run("turn", thread_id="followed"):
                pass
        first, second = islice(events, 2)
    assert first.run_id < second.run_id
    with closing(client.stream_thread("followed", types="run.completed", after=first.id)) as events:
        assert next(events) == second


def test_a_run_is_followed_from_its_last_events(client: Client) -> None:
    with client.run("short") as run:
        run.log.info("one")
    assert seqs(client.stream(run.run_id, tail=2)) == [3, 4]
    assert seqs(client.stream(run.run_id, after=3)) == [4]
    assert seqs(client.stream(run.run_id, after=4)) == []
    assert seqs(client.stream(run.run_id, types=["log.*"], tokens=False)) == [3]


def test_who_joins_in_the_middle_of_a_text_gets_what_there_is(client: Client) -> None:
    with client.run("speaker") as run, run.message() as message:
        message.token("Hello")
        client.flush()
        with closing(client.stream(run.run_id, after=2)) as events:
            text = next(events)
            message.token(", world")
            piece = next(events)
    assert (text.type, text.text, text.payload["offset"]) == ("message.snapshot", "Hello", 5)
    assert (piece.type, piece.text, piece.payload["offset"]) == ("message.delta", ", world", 5)


async def test_an_event_loop_follows_while_it_emits(server: Server) -> None:
    found: list[Event] = []
    async with (
        AsyncClient(server.url, on_error="raise") as client,
        client.run("both") as run,
        aclosing(client.stream(run.run_id, types=["custom.*"])) as events,
    ):
        for n in range(5):
            run.event("custom.counted", {"n": n})
        async for event in events:
            found.append(event)
            if len(found) == 5:
                break
    assert [event.payload["n"] for event in found] == list(range(5))
    assert all(later.seq == before.seq + 1 for before, later in pairwise(found) if before.seq and later.seq)
