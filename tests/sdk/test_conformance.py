"""LangGraph's own conformance suite, on a live server: every capability, every test, through both kinds of methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from conftest import Server
from runreel.langgraph import RunreelSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


class Blocking(RunreelSaver):
    """The sync methods under the names of the async ones, because the suite knows only those."""

    async def aput(self, *arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(self.put, *arguments, **named)

    async def aput_writes(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self.put_writes, *arguments, **named)

    async def aget_tuple(self, *arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(self.get_tuple, *arguments, **named)

    async def alist(self, *arguments: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(lambda: list(self.list(*arguments, **named))):
            yield found

    async def adelete_thread(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self.delete_thread, *arguments, **named)

    async def adelete_for_runs(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self.delete_for_runs, *arguments, **named)

    async def acopy_thread(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self.copy_thread, *arguments, **named)

    async def aprune(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self.prune, *arguments, **named)


@pytest.mark.parametrize("kind", [RunreelSaver, Blocking], ids=["async", "sync"])
async def test_every_capability_of_a_checkpointer_is_there_and_every_test_of_it_passes(
    server: Server, kind: type[RunreelSaver]
) -> None:
    @checkpointer_test(name=kind.__name__)
    async def saver() -> AsyncGenerator[RunreelSaver, None]:
        async with kind(server.url) as saver:
            yield saver

    report = await validate(saver)
    report.print_report()
    assert {capability.value for capability in ALL_CAPABILITIES} == set(TESTS)
    for name, result in report.results.items():
        print(f"{name:16}{result.tests_passed:4} passed{result.tests_failed:4} failed{result.tests_skipped:4} skipped")
    assert [result.failures for result in report.results.values() if result.failures] == []
    assert all(result.detected for result in report.results.values())
    assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
    assert sum(result.tests_skipped for result in report.results.values()) == 0
