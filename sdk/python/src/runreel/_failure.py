"""Errors as events carry them: `{"type", "message", "code", "stack", "cause", "errors"}`, within bounds."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

MESSAGE_CHARACTERS = 16_384
# For all stacks of one error together.
STACK_CHARACTERS = 16_384
# Maximum number of errors in one tree of causes and group members.
ERRORS = 16
# The innermost frames of a stack. Python's default recursion limit is 1 000.
FRAMES = 2_000

_CODE = re.compile(r"[\w.:-]{1,100}")


def described(error: BaseException | str) -> dict[str, object]:
    """An error as events carry it: with its stack, causes and group members, without the values of variables."""
    if isinstance(error, str):
        return {"type": "Error", "message": _beginning(error)}
    nodes: list[dict[str, object]] = []
    whole = _node(error, nodes, set())
    for node in nodes:
        stack = _end(str(node.pop("stack", "")), STACK_CHARACTERS // len(nodes))
        if stack:
            node["stack"] = stack
    return whole


def _node(error: BaseException, nodes: list[dict[str, object]], seen: set[int]) -> dict[str, object]:
    seen.add(id(error))
    one: dict[str, object] = {"type": _name(type(error)), "message": _beginning(_message(error))}
    nodes.append(one)
    code = _attribute(error, "code")
    if isinstance(error, Exception) and isinstance(code, str) and _CODE.fullmatch(code):
        one["code"] = code
    one["stack"] = _stack(error)
    for member, others in (("cause", _causes(error)), ("errors", _members(error))):
        below = []
        for other in others:
            if len(nodes) < ERRORS and id(other) not in seen:
                below.append(_node(other, nodes, seen))
        if below:
            one[member] = below[0] if member == "cause" else below
    return one


def _stack(error: BaseException) -> str:
    """The frames, followed by the notes."""
    try:
        frames = "".join(traceback.format_tb(error.__traceback__, -FRAMES)).rstrip()
        notes: list[object] = getattr(error, "__notes__", [])
        return "\n".join([frames, *(f"  {note}" for note in notes)])
    except Exception:
        # Unreadable sources, or the recursion limit is reached.
        return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The cause, or the context unless it is suppressed, as in Python's tracebacks."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield cause


def _members(error: BaseException) -> Iterator[BaseException]:
    """The members of an `ExceptionGroup`, built in or the backport for Python 3.10."""
    members = _attribute(error, "exceptions")
    if isinstance(members, (tuple, list)):
        yield from (member for member in members[:ERRORS] if isinstance(member, BaseException))


def _name(kind: type[BaseException]) -> str:
    """The name as in a traceback."""
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _attribute(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except Exception:
        return None


def _beginning(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARACTERS else text[:MESSAGE_CHARACTERS] + "…"


def _end(text: str, limit: int) -> str:
    """The last lines: the frames nearest to the failure."""
    if len(text) <= limit:
        return text
    kept = text[-limit:].partition("\n")[2]
    return f"  … {len(text) - len(kept)} characters left out\n{kept}"
