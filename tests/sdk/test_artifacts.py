"""What a run makes is uploaded, in its place, and never breaks the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Server
from runreel import ArtifactTooLarge, AsyncClient, Client, EventsDropped
from runreel._http import Call


def content(client: Client, artifact: Any) -> bytes:
    with client._transport.open(Call("GET", artifact["url"]), 10.0) as response:
        assert response.status_code == 200
        return response.read()


def test_artifacts_are_uploaded_in_their_place(client: Client, tmp_path: Path) -> None:
    large = bytes(range(256)) * 12_000
    (tmp_path / "plot.png").write_bytes(large)
    with client.run("maker") as run:
        run.log.info("before")
        text = run.artifact("notes.txt", "hello")
        with run.step("draw") as step:
            plot = step.artifact("plöt", path=tmp_path / "plot.png")
        table = run.artifact("table", {"rows": [1, 2]})
        empty = run.artifact("empty", b"", media_type="application/x-empty")
        run.log.info("after")
    assert (text["media_type"], text["size"]) == ("text/plain", 5)
    assert text["sha256"] == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert (plot["name"], plot["media_type"], content(client, plot)) == ("plöt", "image/png", large)
    assert (table["media_type"], content(client, table)) == ("application/json", b'{"rows": [1, 2]}')
    assert (empty["media_type"], empty["size"]) == ("application/x-empty", 0)
    created = list(client.events(run.run_id, types="artifact.created"))
    assert [event.payload for event in created] == [text, plot, table, empty]
    assert created[1].parent_span_id == step.span_id
    said = [event.type for event in client.events(run.run_id)]
    assert said[2:4] == ["log.info", "artifact.created"]
    assert client.dropped == 0


def test_an_artifact_over_the_bound_is_refused_at_once(client: Client, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1_073_741_825)
    with client.run("maker") as run:
        with pytest.raises(ArtifactTooLarge, match="1073741825"):
            run.artifact("huge", path=tmp_path / "huge")
        with pytest.raises(OSError, match="missing"):
            run.artifact("missing", path=tmp_path / "missing")


def test_an_artifact_that_is_refused_is_reported_and_the_program_goes_on(server: Server) -> None:
    with server.client(on_error="warn") as client:
        with client.run("maker") as run:
            assert run.artifact("not/a/name", "x") is None
            assert run.artifact("name", "x") is not None
        assert client.dropped == 1
        assert run.artifact("late", "x") is None
        assert client.get_run(run.run_id)["status"] == "completed"
    with (
        server.client(on_error="raise") as client,
        client.run("maker") as run,
        pytest.raises(EventsDropped, match="not/a/name"),
    ):
        run.artifact("not/a/name", "x")


def test_without_a_server_an_upload_comes_to_nothing_and_does_not_wait() -> None:
    with Client("http://127.0.0.1:9", on_error="ignore") as client:
        run = client.run("alone")
        assert run.artifact("name", "x") is None
        assert client.dropped >= 1


async def test_in_an_event_loop_an_upload_is_awaited(server: Server, tmp_path: Path) -> None:
    large = b"0123456789abcdef" * 200_000
    (tmp_path / "large.bin").write_bytes(large)
    async with AsyncClient(server.url) as client:
        async with client.run("maker") as run:
            text = await run.artifact("notes.txt", "hello")
            with run.step("draw") as step:
                file = await step.artifact("large.bin", path=tmp_path / "large.bin")
            assert await run.artifact("not/a/name", "x") is None
        created = [event.payload async for event in client.events(run.run_id, types="artifact.created")]
        assert created == [text, file]
        assert client.dropped == 1
    with server.client() as client:
        assert content(client, file) == large
