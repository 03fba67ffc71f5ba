"""What an exception becomes in an event: everything that helps to understand it, and never too much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reading import said

from runreel._failure import described
from runreel._payload import encoded


class Mute(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name in ("code", "exceptions", "__notes__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Group(Exception):
    """As the package `exceptiongroup` has one for Python 3.10."""

    def __init__(self, *exceptions: object) -> None:
        super().__init__("some failed")
        self.exceptions = exceptions


def chain(length: int) -> Exception:
    error = Exception("the first")
    for n in range(length):
        error, error.__cause__ = Exception(f"e{n}"), error
    return error


def all_of(error: Any) -> Iterator[Any]:
    yield error
    for below in (error.get("cause"), *error.get("errors", ())):
        if below is not None:
            yield from all_of(below)


def test_there_is_a_bound_on_causes_and_members_and_each_is_told_once() -> None:
    circular = ValueError("a")
    circular.__cause__ = KeyError("b")
    circular.__cause__.__cause__ = circular
    assert [said(error) for error in all_of(described(circular))] == ["ValueError: a", "KeyError: 'b'"]
    for error in (chain(50), Group(*map(ValueError, range(1_000))), Group(*(chain(50) for _ in range(50)))):
        assert len(list(all_of(described(error)))) == 16
    members = [said(error) for error in all_of(described(Group("no error", KeyError("x"))))]
    assert members == ["test_failures.Group: some failed", "KeyError: 'x'"]


def test_a_suppressed_context_is_not_told() -> None:
    error = ValueError("shown")
    error.__context__, error.__suppress_context__ = KeyError("hidden"), True
    assert "cause" not in described(error)


def test_a_long_stack_keeps_its_last_lines_and_an_error_fits_an_event() -> None:
    def deep(level: int) -> None:
        if level:
            eval(f"{'(' * (level % 3)}deep(level - 1){')' * (level % 3)}", {"deep": deep, "level": level})
        raise ValueError("é" * 100_000)

    try:
        deep(200)
    except ValueError as error:
        told: Any = described(error)
    assert len(told["message"]) == 16_385
    assert told["message"].endswith("é…")
    assert told["stack"].startswith("  … ")
    assert len(told["stack"]) < 16_384 + 50
    assert told["stack"].endswith('raise ValueError("é" * 100_000)')
    assert b"$truncated" not in encoded({"error": told})


def test_an_exception_that_cannot_be_looked_at_is_told_all_the_same() -> None:
    assert said(described(Mute("x"))) == "test_failures.Mute: x"
    assert said(described(KeyboardInterrupt())) == "KeyboardInterrupt"
    assert "code" not in described(SystemExit("bye"))
    assert described("no ink") == {"type": "Error", "message": "no ink"}
