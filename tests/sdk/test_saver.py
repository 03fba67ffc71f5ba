"""RunreelSaver beyond the conformance suite: what travels, what is refused, who may share it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from conftest import Fake, Server
from runreel import ApiError, ConnectionFailed
from runreel.langgraph import RunreelSaver


@pytest.fixture
def saver(server: Server) -> Iterator[RunreelSaver]:
    with RunreelSaver(server.url) as saver:
        saver.setup()
        yield saver


def at(thread_id: str, checkpoint_id: str | None = None, ns: str | None = "") -> Any:
    members = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": {name: value for name, value in members.items() if value is not None}}


def checkpoint(values: dict[str, Any], versions: dict[str, Any] | None = None) -> Checkpoint:
    made = str(uuid6())
    return {
        "v": 4,
        "id": made,
        "ts": "2026-11-21T23:37:27+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, made) if versions is None else versions,
        "versions_seen": {"node": dict.fromkeys(values, made)},
        "updated_channels": None,
    }


def put(saver: RunreelSaver, thread_id: str, values: dict[str, Any], metadata: Any = None, ns: str = "") -> Any:
    made = checkpoint(values)
    said: Any = metadata or {"source": "loop", "step": 0}
    return saver.put(at(thread_id, ns=ns), made, said, made["channel_versions"])


def row(server: Server, config: Any) -> dict[str, Any]:
    """A checkpoint as it lies on the server."""
    place = config["configurable"]
    with server.client() as client:
        path = f"/api/threads/{place['thread_id']}/checkpoints/{place['checkpoint_id']}"
        answer: dict[str, Any] = client._transport.request("GET", path)
        return answer


def test_a_checkpoint_comes_back_as_it_was_put(saver: RunreelSaver) -> None:
    values = {
        "messages": [HumanMessage("hello", id="1"), AIMessage("hé \U0001f9f3", id="2")],
        "nothing": None,
        "yes": True,
        "count": 2**40,
        "ratio": 0.1,
        "short": "x" * 64,
        "long": "x" * 65,
        "bytes": b"\0\xff",
        "nested": {"list": [1, [2]], "set": {1}},
        "empty": [],
    }
    made = checkpoint(values, {name: f"0000000{place}.abc" for place, name in enumerate(values)})
    config = saver.put(at("as-it-was"), made, {"source": "input", "step": -1}, made["channel_versions"])
    found = saver.get_tuple(config)
    assert found is not None
    assert found.config == config
    assert found.parent_config is None
    assert found.checkpoint == made
    assert found.metadata == {"source": "input", "step": -1}
    assert found.pending_writes == []


def test_short_values_lie_in_the_checkpoint_and_versions_travel_once(server: Server, saver: RunreelSaver) -> None:
    config = put(saver, "layout", {"short": "x" * 64, "long": "x" * 65, "list": [1], "flag": True})
    stored = row(server, config)
    assert set(stored["blobs"]) == {"long", "list"}
    assert set(stored["versions"]) == {"short", "long", "list", "flag"}
    kind, data = stored["checkpoint"]["t"], base64.b64decode(stored["checkpoint"]["b"])
    state = JsonPlusSerializer().loads_typed((kind, data))
    assert state["channel_values"] == {"short": "x" * 64, "flag": True}
    assert not {"id", "channel_versions"} & set(state)


class Xor:
    """A cipher one can see through, for the test alone."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(byte ^ 0x55 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "xor"
        return bytes(byte ^ 0x55 for byte in ciphertext)


def test_an_encrypting_serialiser_leaves_nothing_of_the_state_to_read(server: Server) -> None:
    with RunreelSaver(server.url, serde=EncryptedSerializer(Xor())) as saver:
        config = put(saver, "secret", {"list": ["the plan"], "short": "the plan"})
        saver.put_writes(config, [("list", ["the plan"])], "task", "path")
        stored = row(server, config)
        kinds = [stored["checkpoint"]["t"], stored["blobs"]["list"]["t"], stored["writes"][0]["t"]]
        assert kinds == ["msgpack+xor"] * 3
        everything = [stored["checkpoint"], stored["blobs"]["list"], stored["writes"][0]]
        assert not any(b"the plan" in base64.b64decode(typed["b"]) for typed in everything)
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"list": ["the plan"], "short": "the plan"}
        assert found.pending_writes == [("task", "list", ["the plan"])]


def test_what_is_absent_is_none_or_empty_and_no_error(saver: RunreelSaver) -> None:
    assert saver.get_tuple(at("nobody")) is None
    assert saver.get_tuple(at("nobody", "1f0")) is None
    assert list(saver.list(at("nobody"))) == []
    saver.delete_thread("nobody")
    saver.copy_thread("nobody", "nobody-2")
    saver.prune(["nobody"])
    saver.delete_for_runs([])
    assert saver.get_tuple(at("nobody-2")) is None


@pytest.mark.parametrize("thread_id", ["", "with space", "a/b", "é", "x" * 256])
def test_a_thread_id_the_server_would_refuse_is_refused_before_anything_is_sent(thread_id: str) -> None:
    with RunreelSaver("http://127.0.0.1:9", retries=0) as saver:
        for call in (
            lambda: saver.get_tuple(at(thread_id)),
            lambda: put(saver, thread_id, {}),
            lambda: list(saver.list(at(thread_id))),
            lambda: saver.delete_thread(thread_id),
            lambda: saver.copy_thread("a", thread_id),
            lambda: saver.prune([thread_id]),
        ):
            with pytest.raises(ValueError, match="1 to 255 characters"):
                call()


def test_metadata_loses_what_no_database_keeps_and_nothing_else(saver: RunreelSaver) -> None:
    metadata: Any = {"source": "loop", "step": 1, "odd": "a\0b\ud800c", "deep": {"k\0": ["\udfff", "\U0001f9f3", 1.5]}}
    found = saver.get_tuple(put(saver, "odd", {}, metadata))
    assert found is not None
    assert found.metadata["odd"] == "ab\ufffdc"  # type: ignore[typeddict-item]
    assert found.metadata["deep"] == {"k": ["\ufffd", "\U0001f9f3", 1.5]}  # type: ignore[typeddict-item]
    found = saver.get_tuple(
        put(saver, "odd", {}, {"source": "loop", "none": float("nan"), "set": {1}, "own": Path("/x")})
    )
    assert found is not None
    assert found.metadata == {"source": "loop", "none": None, "set": [1], "own": "/x"}


@pytest.mark.parametrize(
    ("configurable", "kept"),
    [
        ({"prompt": "x" * 70_000, "tone": "dry"}, {"tone": "dry", "$truncated": True}),
        ({"prompt": "x" * 70_000, "more": "é" * 40_000}, {"$truncated": True}),
        ({"prompt": "x" * 60_000, "tone": "dry"}, {"prompt": "x" * 60_000, "tone": "dry"}),
        ({"\0": "\0" * 70_000, "odd": "\ud800", "none": float("nan")}, {"odd": "\ufffd", "none": None}),
    ],
)
def test_a_graph_whose_configuration_is_long_or_odd_runs(
    saver: RunreelSaver, configurable: dict[str, Any], kept: dict[str, Any]
) -> None:
    graph = StateGraph(dict).add_node("n", lambda state: {"n": 1}).add_edge(START, "n").compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": f"long-{len(str(configurable))}", **configurable}}
    assert graph.invoke({}, config) == {"n": 1}
    found = saver.get_tuple(config)
    assert found is not None
    told = {name: member for name, member in found.metadata.items() if name in (*configurable, "$truncated")}
    assert (told, found.metadata["source"], found.metadata["step"]) == (kept, "loop", 1)


def test_of_many_members_as_many_are_kept_as_there_is_room_for(saver: RunreelSaver) -> None:
    metadata: Any = {"source": "loop", "step": 1, **{f"m{n}": "é" * 9 for n in range(9_000)}}
    found = saver.get_tuple(put(saver, "many", {}, metadata))
    assert found is not None
    size = len(json.dumps(found.metadata, ensure_ascii=False, separators=(",", ":")).encode())
    assert 65_000 < size <= 65_536
    assert (found.metadata["source"], found.metadata["step"]) == ("loop", 1)


def test_a_list_of_hundreds_comes_page_by_page_newest_first(saver: RunreelSaver) -> None:
    configs = [put(saver, "pages", {"n": n}, {"source": "loop", "step": n, "odd": n % 2}) for n in range(230)]
    ids = [config["configurable"]["checkpoint_id"] for config in configs]
    newest_first = ids[::-1]

    def listed(config: Any, **arguments: Any) -> list[str]:
        return [found.config["configurable"]["checkpoint_id"] for found in saver.list(config, **arguments)]

    assert listed(at("pages")) == newest_first
    assert listed(at("pages"), limit=130) == newest_first[:130]
    assert listed(at("pages"), limit=0) == []
    assert listed(at("pages"), before=configs[110]) == ids[:110][::-1]
    assert listed(at("pages"), filter={"odd": 1}) == ids[1::2][::-1]
    assert listed(at("pages"), filter={"odd": 1}, before=configs[9], limit=2) == [ids[7], ids[5]]
    assert listed(at("pages", ids[7])) == [ids[7]]
    assert listed(at("pages", ids[7]), filter={"odd": 0}) == []
    assert listed(at("pages", ids[7]), before=configs[7]) == []
    assert listed(None, filter={"step": 229, "odd": 1})[:1] == [ids[229]]


def test_a_list_without_a_namespace_shows_all_of_them(saver: RunreelSaver) -> None:
    for ns in ("", "child:1", "child:1|grandchild:2"):
        put(saver, "namespaces", {"ns": ns}, ns=ns)
    assert [found.config["configurable"]["checkpoint_ns"] for found in saver.list(at("namespaces", ns=None))] == [
        "child:1|grandchild:2",
        "child:1",
        "",
    ]
    assert len(list(saver.list(at("namespaces", ns="child:1")))) == 1


def test_a_run_id_that_is_no_text_stays_metadata(saver: RunreelSaver) -> None:
    found = saver.get_tuple(put(saver, "numbered", {}, {"source": "loop", "run_id": 7}))
    assert found is not None
    assert found.metadata["run_id"] == 7  # type: ignore[comparison-overlap]


def test_one_saver_serves_many_threads_at_a_time(saver: RunreelSaver) -> None:
    def live(number: int) -> list[int]:
        for step in range(10):
            config = put(saver, f"worker-{number}", {"step": [number, step]})
            saver.put_writes(config, [("step", step)], "task")
        return [found.checkpoint["channel_values"]["step"][1] for found in saver.list(at(f"worker-{number}"))]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(8))) == [list(range(9, -1, -1))] * 8


def test_one_saver_serves_one_event_loop_after_the_other_and_forgets_the_closed_ones(server: Server) -> None:
    saver = RunreelSaver(server.url)

    async def live(thread_id: str) -> int:
        made = checkpoint({"n": 1})
        for _ in range(3):
            await saver.aput(at(thread_id), {**made, "id": str(uuid6())}, {"source": "loop"}, {"n": 1})
        count = len([found async for found in saver.alist(at(thread_id))])
        await saver.aclose()
        return count

    assert [asyncio.run(live(f"loop-{number}")) for number in range(3)] == [3, 3, 3]
    assert saver._async_transports == {}


async def test_sync_and_async_methods_see_the_same(server: Server) -> None:
    async with RunreelSaver(server.url) as saver:
        config = await asyncio.to_thread(put, saver, "both", {"n": [1]})
        await saver.aput_writes(config, [("n", 2)], "task", "path")
        assert await saver.aget_tuple(config) == await asyncio.to_thread(saver.get_tuple, config)
        await saver.adelete_thread("both")
        assert await asyncio.to_thread(saver.get_tuple, config) is None


def test_a_write_stays_as_it_was_first_and_what_a_task_says_of_itself_is_replaced(saver: RunreelSaver) -> None:
    config = put(saver, "writes", {})
    saver.put_writes(config, [("a", 1), ("b", 2)], "task", "path")
    saver.put_writes(config, [("a", "late"), ("b", "late"), ("c", 3)], "task", "path")
    saver.put_writes(config, [("__error__", "first")], "task", "path")
    saver.put_writes(config, [("__error__", "second")], "task", "path")
    saver.put_writes(config, [], "task", "path")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == [
        ("task", "__error__", "second"),
        ("task", "a", 1),
        ("task", "b", 2),
        ("task", "c", 3),
    ]


def test_versions_grow_never_repeat_and_stand_behind_those_of_other_savers(saver: RunreelSaver) -> None:
    versions = [saver.get_next_version(None, None)]
    for _ in range(2_000):
        versions.append(saver.get_next_version(versions[-1], None))
    assert versions == sorted(set(versions))
    other = InMemorySaver().get_next_version("00000000000000000000000000000011.5", None)
    assert saver.get_next_version(other, None) > other
    assert len({saver.get_next_version("00000007.aa", None) for _ in range(1_000)}) == 1_000


def test_a_copy_is_complete_lives_on_its_own_and_is_not_laid_over_another_thread(saver: RunreelSaver) -> None:
    first = put(saver, "original", {"n": [1]})
    saver.put_writes(first, [("n", 2)], "task")
    saver.copy_thread("original", "the-copy")
    copied = saver.get_tuple(at("the-copy"))
    assert copied is not None
    assert copied.checkpoint["channel_values"] == {"n": [1]}
    assert copied.pending_writes == [("task", "n", 2)]
    saver.delete_thread("original")
    assert saver.get_tuple(at("the-copy")) == copied
    put(saver, "another", {"n": [3]})
    with pytest.raises(ApiError, match="thread_exists"):
        saver.copy_thread("another", "the-copy")


def appended(lines: list[str] | None, more: Sequence[list[str]]) -> list[str]:
    return [*(lines or []), *(line for some in more for line in some)]


class Log(TypedDict):
    lines: Annotated[list[str], DeltaChannel(appended, snapshot_frequency=3)]


def test_a_graph_with_a_delta_channel_reads_its_value_from_its_history_and_is_not_pruned(saver: RunreelSaver) -> None:
    graph = (
        StateGraph(Log)
        .add_node("say", lambda state: {"lines": ["said"]})
        .add_edge(START, "say")
        .compile(checkpointer=saver)
    )
    config = at("delta")
    for number in range(5):
        graph.invoke({"lines": [f"line {number}"]}, config)
    expected = [line for number in range(5) for line in (f"line {number}", "said")]
    assert graph.get_state(config).values["lines"] == expected
    history = [snapshot.values.get("lines", []) for snapshot in graph.get_state_history(config)]
    assert all(lines == expected[: len(lines)] for lines in history)
    put(saver, "plain", {"n": 1})
    put(saver, "plain", {"n": 2})
    with pytest.raises(NotImplementedError, match="delta"):
        saver.prune(["plain", "delta"])
    assert len(list(saver.list(at("plain")))) == 2
    saver.copy_thread("delta", "delta-copy")
    assert graph.get_state(at("delta-copy")).values["lines"] == expected
    saver.prune(["delta"], strategy="delete")
    assert graph.get_state(config).values == {}


def test_a_prune_that_makes_no_sense_is_refused(saver: RunreelSaver) -> None:
    with pytest.raises(ValueError, match="keep_latest or delete"):
        saver.prune(["a"], strategy="keep_some")
    with pytest.raises(TypeError, match="sequence"):
        saver.prune("abc")


def test_a_saver_waits_for_a_server_that_restarts(restartable: Server) -> None:
    with RunreelSaver(restartable.url, retries=40) as saver:
        config = put(saver, "restart", {"n": [1]})
        restartable.kill()
        back = threading.Thread(target=restartable.start)
        back.start()
        found = saver.get_tuple(config)
        after = put(saver, "restart", {"n": [2]})
        back.join()
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": [1]}
        assert [listed.config for listed in saver.list(at("restart"))] == [after, config]


def test_a_connection_that_was_cut_is_replaced_and_a_server_that_is_not_there_is_said_to_be(fake: Fake) -> None:
    with RunreelSaver(fake.url) as saver:
        fake.hangs_up().answers(200, {"checkpoints": [], "next_cursor": None})
        assert list(saver.list(at("any"))) == []
        fake.refuses(503, "unavailable", retry_after="0").refuses(404, "not_found")
        assert saver.get_tuple(at("any", "a b", ns="child:1|x")) is None
    assert fake.requests[-1].path == "/api/threads/any/checkpoints/a%20b?ns=child%3A1%7Cx"
    with RunreelSaver("http://127.0.0.1:9", retries=0) as saver, pytest.raises(ConnectionFailed):
        saver.get_tuple(at("any"))


def test_a_saver_that_was_closed_says_so(server: Server) -> None:
    saver = RunreelSaver(server.url)
    saver.close()
    with pytest.raises(RuntimeError, match="closed"):
        saver.get_tuple(at("any"))


def test_a_checkpoint_with_other_metadata_and_a_number_as_thread_id_is_taken(saver: RunreelSaver) -> None:
    metadata: CheckpointMetadata = {"source": "update", "step": 3, "parents": {"": "1f0"}}
    config = saver.put({"configurable": {"thread_id": 12, "checkpoint_ns": ""}}, checkpoint({}), metadata, {})
    assert config["configurable"]["thread_id"] == "12"
    found = saver.get_tuple({"configurable": {"thread_id": 12}})
    assert found is not None
    assert found.metadata == metadata


def test_a_saver_prints_nothing_of_its_credential(server: Server) -> None:
    with RunreelSaver(server.url, token="rr_secret") as saver:
        assert "secret" not in repr(saver) + repr(vars(saver))
        assert "secret" not in repr(saver._transport)
