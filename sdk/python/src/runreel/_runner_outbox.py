"""A runner's messages about its runs, until the server acknowledges them. Plain data; the caller holds the lock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

MESSAGE_EVENTS = 500
MESSAGE_BYTES = 1_048_576


@dataclass(slots=True)
class Line:
    """An event as JSON; a delta is sent at most once."""

    data: bytes
    delta: bool


@dataclass(slots=True)
class Sent:
    """A message; its number never changes."""

    n: int
    lines: list[Line]


@dataclass(slots=True)
class Said:
    """The unacknowledged messages of one assignment."""

    fresh: deque[Line] = field(default_factory=deque)
    waiting: deque[Sent] = field(default_factory=deque)
    n: int = 0
    acked: int = 0
    # How many messages of `waiting` were sent over this connection.
    sent: int = 0
    done: bool = False
    done_sent: bool = False

    @property
    def settled(self) -> bool:
        return not self.fresh and not self.waiting

    def next(self) -> list[Sent]:
        """The messages to send now."""
        while self.fresh:
            lines: list[Line] = []
            size = 0
            while self.fresh and len(lines) < MESSAGE_EVENTS and size < MESSAGE_BYTES:
                lines.append(self.fresh.popleft())
                size += len(lines[-1].data)
            self.n += 1
            self.waiting.append(Sent(self.n, lines))
        messages = list(self.waiting)[self.sent :]
        self.sent = len(self.waiting)
        return messages

    def again(self) -> None:
        """Prepares a new connection: unacknowledged messages are resent without deltas, which readers may have seen."""
        for message in list(self.waiting)[: self.sent]:
            message.lines = [line for line in message.lines if not line.delta]
        self.sent = 0
        self.done_sent = False

    def ack(self, n: int) -> None:
        self.acked = max(self.acked, n)
        while self.waiting and self.waiting[0].n <= n:
            self.waiting.popleft()
            self.sent = max(0, self.sent - 1)

    def refused(self, n: int) -> None:
        """The server rejected one message, but none of the others."""
        before = list(self.waiting)
        gone = [at for at, message in enumerate(before) if message.n == n]
        self.waiting = deque(message for message in before if message.n != n)
        self.sent -= sum(1 for at in gone if at < self.sent)
        self.acked = max(self.acked, n)


def message_json(run_id: str, message: Sent) -> str:
    """An `event` message."""
    events = b",".join(line.data for line in message.lines).decode()
    return f'{{"type":"event","run_id":"{run_id}","n":{message.n},"events":[{events}]}}'


def is_terminal(type: str) -> bool:
    return type in ("run.completed", "run.failed", "run.cancelled")


def text_member(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""
