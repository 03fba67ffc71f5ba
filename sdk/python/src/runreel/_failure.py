"""What went wrong, as events carry it: `{"type", "message", "code", "stack", "cause", "errors"}`, within bounds."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

MESSAGE_CHARACTERS = 16_384
# Of all the stacks in one error.
STACK_CHARACTERS = 16_384
# An error, its causes, and theirs.
ERRORS = 16
# The innermost frames. Python's own bound of a recursion is a thousand.
FRAMES = 2_000

_CODE = re.compile(r"[\w.:-]{1,100}")


def described(error: BaseException | str) -> dict[str, object]:
    """An error as events carry it: with its stack, its causes and the members of a group; no values of variables."""
    if isinstance(error, str):
        return {"type": "Error", "message": _beginning(error)}
    told: list[dict[str, object]] = []
    whole = _told(error, told, set())
    for each in told:
        stack = _end(str(each.pop("stack", "")), STACK_CHARACTERS // len(told))
        if stack:
            each["stack"] = stack
    return whole


def _told(error: BaseException, told: list[dict[str, object]], seen: set[int]) -> dict[str, object]:
    seen.add(id(error))
    one: dict[str, object] = {"type": _name(type(error)), "message": _beginning(_message(error))}
    told.append(one)
    code = _attribute(error, "code")
    if isinstance(error, Exception) and isinstance(code, str) and _CODE.fullmatch(code):
        one["code"] = code
    one["stack"] = _stack(error)
    for member, others in (("cause", _causes(error)), ("errors", _members(error))):
        below = []
        for other in others:
            if len(told) < ERRORS and id(other) not in seen:
                below.append(_told(other, told, seen))
        if below:
            one[member] = below[0] if member == "cause" else below
    return one


def _stack(error: BaseException) -> str:
    """The frames, and below them the notes."""
    try:
        frames = "".join(traceback.format_tb(error.__traceback__, -FRAMES)).rstrip()
        notes: list[object] = getattr(error, "__notes__", [])
        return "\n".join([frames, *(f"  {note}" for note in notes)])
    except Exception:
        # Sources that cannot be read, or no room left for calls.
        return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What led to it, by the rule of Python's own tracebacks."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield cause


def _members(error: BaseException) -> Iterator[BaseException]:
    """Of an `ExceptionGroup`, Python's own or the one for 3.10."""
    members = _attribute(error, "exceptions")
    if isinstance(members, (tuple, list)):
        yield from (member for member in members[:ERRORS] if isinstance(member, BaseException))


def _name(kind: type[BaseException]) -> str:
    """As a traceback names it."""
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
