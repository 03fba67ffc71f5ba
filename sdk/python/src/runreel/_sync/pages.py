# Generated from src/runreel/_async/pages.py by `./just unasync`: change that file instead of this one.
"""Paginated lists."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .. import _routes
from .._http import Call, rows
from .transport import Transport


def pages(transport: Transport, first: Call, member: str) -> Generator[Any, None, None]:
    """The rows under `member` in the answer to `first` and in the pages after it, each fetched on demand."""
    call: Call | None = first
    while call is not None:
        answer = transport.send(call)
        yield from rows(answer, member)
        call = _routes.next_page(call, answer)
