"""What threads use is made of what event loops use, and has been since the last change."""

from __future__ import annotations

import unasync


def test_the_generated_files_are_what_the_generator_makes() -> None:
    names = [path.relative_to(unasync.PACKAGE).as_posix() for path in unasync.stale()]
    assert names == [], "run ./just unasync"


def test_every_generated_file_says_so_in_its_first_line() -> None:
    for path, text in unasync.generated().items():
        source = path.relative_to(unasync.PACKAGE).as_posix().replace("/_sync/", "/_async/")
        assert text.splitlines()[0] == unasync.HEADER.format(source=source).rstrip()


def test_names_code_and_docstrings_are_turned_into_those_for_threads() -> None:
    written = '''
class AsyncThing(RunScope[AsyncStored]):
    """Use it with `async with`, and `await thing.wait()`."""

    async def __aenter__(self) -> AsyncThing:
        async with aclosing(async_follow(self._async_find)) as events:
            async for event in events:
                await async_sleep(await self.left())

    def rows(self) -> AsyncGenerator[dict[str, int], None]: ...
'''
    assert (
        unasync.for_threads(written)
        == '''
class Thing(RunScope[Stored]):
    """Use it with `with`, and `thing.wait()`."""

    def __enter__(self) -> Thing:
        with closing(follow(self._find)) as events:
            for event in events:
                sleep(self.left())

    def rows(self) -> Generator[dict[str, int], None, None]: ...
'''
    )


def test_names_that_only_look_alike_stay() -> None:
    said = "the asynchronous generator awaits a put in an asyncio loop; Asyncio, _asyncs, outputs, realist"
    assert unasync.for_threads(said) == said
