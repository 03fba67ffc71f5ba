"""Encodes any object, of any size, as JSON that the server accepts, without raising.

The fast path is one call of the standard encoder. Only a value that it or the server would refuse takes the slow
path, which makes a plain copy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import PurePath
from typing import Any
from uuid import UUID

PAYLOAD_BYTES = 65_536
# The server refuses 64 levels; a payload may itself be nested one or two levels deep.
DEPTH = 60
TRUNCATED = "$truncated"

_NAMED_BY_STR = (UUID, datetime, date, time, Decimal, PurePath)
_STRING_LENGTHS = (16_000, 4_000, 1_000, 200)


def encoded(value: object, limit: int = PAYLOAD_BYTES) -> bytes:
    """`value` as JSON of at most `limit` bytes.

    A value without a JSON form becomes its `repr` (dates, UUIDs, paths and decimals their `str`), NaN and infinities
    become null, lone surrogates `U+FFFD`, and NUL characters are removed. A value over the limit keeps its shape with
    long strings cut, and gets the members `"$truncated": true` and `"$bytes"`, its original size; if that is not enough
    it becomes `{"$truncated": true, "$bytes": …, "$head": "the beginning of its JSON"}`.
    """
    data = _quick(value, limit)
    if data is None:
        value = plain(value)
        data = _dump(value)
    return data if len(data) <= limit else _cut(value, data, limit)


def plain(value: object) -> Any:
    """A copy that contains only dicts, lists, strings, finite numbers, booleans and None, at most 60 levels deep."""
    return _plain(value, DEPTH, None)


def _quick(value: object, limit: int) -> bytes | None:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_stand_in)
        data = text.encode()
        # With at most DEPTH brackets it cannot be too deep, and a value over the limit is copied anyway.
        deep = len(data) <= limit and text.count("[") + text.count("{") > DEPTH and _depth(value) > DEPTH
    except Exception:
        # Such as a key that is not a string, a cycle, NaN, a lone surrogate, an integer of 10 000 digits.
        return None
    return None if deep or "\\u0000" in text else data


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _cut(value: object, data: bytes, limit: int) -> bytes:
    for length in _STRING_LENGTHS if _can_fit(value, limit) else ():
        shorter = _plain(value, DEPTH, length)
        if not isinstance(shorter, dict):
            shorter = {"value": shorter}
        candidate = _dump({**shorter, TRUNCATED: True, "$bytes": len(data)})
        if len(candidate) <= limit:
            return candidate
    # Escaping at most doubles the excerpt; a third of the limit leaves room for that.
    head = data[: limit // 3].decode(errors="ignore")
    return _dump({TRUNCATED: True, "$bytes": len(data), "$head": head})


def _can_fit(value: object, limit: int) -> bool:
    """Whether a lower bound of the size after cutting is within the limit. Stops as soon as it is not."""
    try:
        todo: list[Any] = [value]
        while todo and limit >= 0:
            item = todo.pop()
            if isinstance(item, dict):
                # 3 bytes for a key's quotes and colon; each value counts for a byte, and a comma or a bracket.
                members = list(islice(item.items(), limit // 4 + 1))
                limit -= 3 * len(members)
                todo.extend(member for _, member in members)
            elif isinstance(item, (list, tuple)):
                todo.extend(islice(item, limit // 2 + 1))
            limit -= 2 + (min(len(item), _STRING_LENGTHS[-1]) if isinstance(item, str) else 0)
    except Exception:
        return True
    return limit >= 0


def _depth(value: object) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, level = todo.pop()
        if isinstance(item, dict):
            todo.extend((member, level + 1) for member in item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend((member, level + 1) for member in item)
        else:
            continue
        deepest = max(deepest, level)
    return deepest


def _stand_in(value: object) -> str:
    """A text for a value without a JSON form."""
    try:
        return str(value) if isinstance(value, _NAMED_BY_STR) else repr(value)
    except Exception:
        return f"<{type(value).__name__} without a repr>"


def _plain(value: object, levels: int, length: int | None) -> Any:
    try:
        return _copied(value, levels, length)
    except Exception:
        # A custom object whose inspection raises.
        return _text(_stand_in(value), length)


def _copied(value: object, levels: int, length: int | None) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, length)
    if isinstance(value, int):
        return _integer(value, length)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        if not levels:
            return "…"
        return {_key(key, length): _plain(member, levels - 1, length) for key, member in list(value.items())}
    if isinstance(value, (list, tuple, Set)):
        return [_plain(member, levels - 1, length) for member in list(value)] if levels else "…"
    return _text(_stand_in(value), length)


def _key(key: object, length: int | None) -> str:
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    return _text(key if isinstance(key, str) else _stand_in(key), length)


def _integer(value: int, length: int | None) -> Any:
    # Python refuses to format integers of thousands of digits.
    return int(value) if value.bit_length() < 10_000 else _text(hex(value), length)


def whole_characters(text: str) -> str:
    """The text with `U+FFFD` for each lone surrogate."""
    # The round trip joins adjacent surrogates of a pair to their character.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _text(text: str, length: int | None) -> str:
    text = whole_characters(text.replace("\0", ""))
    if length is not None and len(text) > length:
        return text[:length] + "…"
    return text
