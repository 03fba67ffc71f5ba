"""Following a stream across disconnects: the rules without the I/O. `_async/follow.py` applies them.

Guarantee: every durable event after the cursor, once and in order, or `StreamGap`. See "Coming back" in the wire
contract.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import httpx2

from ._events import Event
from ._http import LONGEST_WAIT, RETRIED_STATUS, Call, refusal, retry_after, unanswered
from ._json import JsonObject
from ._sse import Frame, Parser
from .errors import RunreelError, StreamGap

# Seconds without data after which a connection counts as dead: the server sends something every 10 s.
SILENCE = 25.0
LONGEST_PAUSE = 30.0
# Also if the server asks for less: a mistake there must not cause a flood of requests.
SHORTEST_PAUSE = 0.1
# Runs whose last seq is remembered to drop duplicates, which a server would send soon after the original.
RUNS_REMEMBERED = 4_096

OnGap = Literal["raise", "continue"]


class Following:
    """A reader's position, its next request, and the wait before it."""

    def __init__(
        self,
        path: str,
        *,
        after: int | str | None = None,
        types: Iterable[str] | None = None,
        tokens: bool = True,
        tree: bool = False,
        tail: int | None = None,
        on_gap: OnGap = "raise",
        retries: int = 5,
    ) -> None:
        if on_gap not in ("raise", "continue"):
            raise ValueError('on_gap must be "raise" or "continue"')
        self.done = False
        self._path = path
        self._cursor = None if after is None else str(after)
        self._params = {
            "types": None if types is None else ",".join([types] if isinstance(types, str) else types),
            "tokens": None if tokens else "false",
            "tree": "true" if tree else None,
            "tail": tail,
        }
        self._on_gap = on_gap
        self._retries = retries
        self._opened = False
        self._failures = 0
        self._retry = 1.0
        self._asked: float | None = None
        self._seen: OrderedDict[str, int] = OrderedDict()

    def call(self) -> Call:
        """The next request."""
        headers = {"accept": "text/event-stream"}
        if self._cursor:
            headers["last-event-id"] = self._cursor
        return Call("GET", self._path, params=self._params, headers=headers)

    def answered(self, response: httpx2.Response) -> bool:
        """Whether there is a stream to read; for other answers the body must have been read. Raises `ApiError`."""
        if response.status_code == 200:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise RunreelError(f"{self._path} did not answer with an event stream: is this a Runreel server?")
            self._opened = True
            return True
        if response.status_code == 204:
            self.done = True
        elif response.status_code in RETRIED_STATUS and self._may_come_back():
            self._failures += 1
            self._asked = retry_after(response)
        else:
            raise refusal(response)
        return False

    def cut(self, error: httpx2.TransportError | None = None) -> None:
        """The connection ended or failed. Raises `ConnectionFailed` when none ever opened and no retries are left."""
        if error is not None and not self._may_come_back():
            raise unanswered(self.call(), error) from error
        self._failures += 1

    def pause(self) -> float:
        """Seconds until the next request: as the server asked, or else growing with each failure; with jitter."""
        asked, self._asked = self._asked, None
        if not self._failures and asked is None:
            return 0.0
        grown = min(self._retry * 2.0 ** min(self._failures - 1, 8), LONGEST_PAUSE)
        return max(SHORTEST_PAUSE, grown if asked is None else asked) * random.uniform(1.0, 1.25)

    def events(self, parser: Parser, chunk: bytes) -> Iterator[Event]:
        """The events of a chunk. Stops once `done` is set."""
        for frame in parser.feed(chunk):
            self._failures = 0
            if parser.retry_ms is not None:
                self._retry = parser.retry_ms / 1_000
            event = self._read(frame)
            if event is not None:
                yield event
            if self.done:
                return

    def _read(self, frame: Frame) -> Event | None:
        try:
            data = json.loads(frame.data)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise _broken("data that is not a JSON object")
        if frame.event.startswith("stream."):
            self._control(frame.event, data)
            return None
        if frame.event == "message.snapshot":
            return _snapshot(data)
        if not (_is_text(data, "run_id") and _is_text(data, "type") and isinstance(data.get("payload", {}), dict)):
            raise _broken("an event without run_id, type or payload")
        if not isinstance(data.get("seq") or 0, int):
            raise _broken("an event whose seq is not a number")
        event = Event.of(data, frame.id)
        if event.seq is None:
            return event
        self._cursor = frame.id or self._cursor
        if event.seq <= self._seen.get(event.run_id, 0):
            return None
        self._seen[event.run_id] = event.seq
        self._seen.move_to_end(event.run_id)
        if len(self._seen) > RUNS_REMEMBERED:
            self._seen.popitem(last=False)
        return event

    def _control(self, name: str, data: dict[str, Any]) -> None:
        if name == "stream.end":
            self.done = True
        elif name == "stream.caught_up":
            # In a feed: the position up to which events were checked, including those that were filtered out.
            self._cursor = data.get("cursor") or self._cursor
        elif name in ("stream.draining", "stream.reset"):
            asked = data.get("retry_ms")
            self._asked = min(asked / 1_000, LONGEST_WAIT) if isinstance(asked, int) else 1.0
        elif name == "stream.gap" and self._on_gap == "raise":
            raise StreamGap(data.get("requested_after"), data.get("first_seq"))

    def _may_come_back(self) -> bool:
        # A stream that was open once is retried indefinitely; an address that never answered is likely wrong.
        return self._opened or self._failures < self._retries


def _broken(what: str) -> RunreelError:
    return RunreelError(f"the event stream is malformed: it contains {what}")


def _is_text(data: dict[str, Any], name: str) -> bool:
    return isinstance(data.get(name), str)


def _snapshot(data: dict[str, Any]) -> Event:
    if not (_is_text(data, "run_id") and isinstance(data.get("text"), str)):
        raise _broken("a snapshot without run_id or text")
    payload: JsonObject = {name: data[name] for name in ("text", "offset", "type") if name in data}
    return Event.of({**data, "type": "message.snapshot", "payload": payload})


def patience(deadline: float | None) -> float:
    """Seconds for which the peer may be silent; TimeoutError when the deadline has passed."""
    return min(SILENCE, left(deadline))


def left(deadline: float | None) -> float:
    """Seconds until the deadline; TimeoutError when it has passed."""
    left = math.inf if deadline is None else deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no event in time")
    return left
