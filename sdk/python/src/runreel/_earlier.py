"""What the server knows of an earlier run, asked for by a program that must not wait long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2

from . import _routes
from ._events import RunRecord
from ._http import Call, read_answer, unanswered
from ._sync.client import BaseClient
from .errors import ApiError

ENDS = ("completed", "failed", "cancelled")
# Seconds. The program waits meanwhile.
PATIENCE = 2.0


def found(client: BaseClient, run_id: str) -> RunRecord | None:
    """The run; None when it is not there.

    Raises `ConnectionFailed` when the server does not answer soon, `ApiError` when it refuses.
    """
    try:
        record: RunRecord = promptly(client, _routes.run(run_id))
    except ApiError as error:
        if error.code != "not_found":
            raise
        return None
    return record


def unfinished(client: BaseClient, thread_id: str, title: str) -> RunRecord | None:
    """The newest run of this title on the thread; None when there is none. Raises as `found`."""
    runs: Iterator[RunRecord] = pages(client, _routes.runs(thread_id=thread_id), "runs")
    return next((run for run in runs if run["title"] == title), None)


def pages(client: BaseClient, first: Call, member: str) -> Iterator[Any]:
    """What a list has, page by page, each asked for once. Raises as `found`."""
    call: Call | None = first
    while call is not None:
        answer = promptly(client, call)
        yield from answer[member]
        call = _routes.next_page(call, answer)


def promptly(client: BaseClient, call: Call) -> Any:
    """The answer to one attempt. The program is not delayed for as long as the client would retry."""
    try:
        with client._transport.open(call, PATIENCE) as response:
            response.read()
    except httpx2.TransportError as error:
        raise unanswered(call, error) from error
    return read_answer(response)
