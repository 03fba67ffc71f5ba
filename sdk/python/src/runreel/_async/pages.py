"""Paginated lists."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from .. import _routes
from .._http import Call, rows
from .transport import AsyncTransport


async def pages(transport: AsyncTransport, first: Call, member: str) -> AsyncGenerator[Any, None]:
    """The rows under `member` in the answer to `first` and in the pages after it, each fetched on demand."""
    call: Call | None = first
    while call is not None:
        answer = await transport.send(call)
        for row in rows(answer, member):
            yield row
        call = _routes.next_page(call, answer)
