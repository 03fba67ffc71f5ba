"""Queries about earlier runs, for callers that must not wait long."""

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
# Seconds for an answer. The program is blocked meanwhile.
PATIENCE = 2.0


def found(client: BaseClient, run_id: str) -> RunRecord | None:
    """The run, or None if it does not exist.

    Raises `ConnectionFailed` when the server does not answer in time, `ApiError` when it refuses.
    """
    try:
        record: RunRecord = promptly(client, _routes.run(run_id))
    except ApiError as error:
        if error.code != "not_found":
            raise
        return None
    return record


def unfinished(client: BaseClient, thread_id: str, title: str) -> RunRecord | None:
    """The newest run with this title on the thread, or None. Raises like `found`."""
    runs: Iterator[RunRecord] = pages(client, _routes.runs(thread_id=thread_id), "runs")
    return next((run for run in runs if run["title"] == title), None)


def pages(client: BaseClient, first: Call, member: str) -> Iterator[Any]:
    """The rows of a list, page by page, without retries. Raises like `found`."""
    call: Call | None = first
    while call is not None:
        answer = promptly(client, call)
        yield from answer[member]
        call = _routes.next_page(call, answer)


def promptly(client: BaseClient, call: Call) -> Any:
    """The answer to one attempt, because retries would delay the program. Raises like `found`."""
    try:
        with client._transport.open(call, PATIENCE) as response:
            response.read()
    except httpx2.TransportError as error:
        raise unanswered(call, error) from error
    return read_answer(response)
