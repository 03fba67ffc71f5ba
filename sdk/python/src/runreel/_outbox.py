"""The queue of what waits to be sent: bounded, ordered, batched. Plain data; the caller holds the lock.

Events of one run leave in the order they came. Between runs the order matters in one place: a child is created while
its parent lives. So nothing overtakes the creation of a run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from ._http import Call, quote
from ._payload import encoded

BATCH_EVENTS = 500
BATCH_BYTES = 1_048_576
# Deltas of one span are put together up to here, so that they stay well under the bound of a payload.
DELTA_CHARACTERS = 8_192
# What an event costs besides its payload: names, ids, a time.
OVERHEAD_BYTES = 256
# Which share of the queue's bounds may be taken, by what. The more a reader needs it, the longer there is room.
SHARE_OF_DELTAS, SHARE_OF_EVENTS, SHARE_OF_RUNS, SHARE_OF_ENDS = 0.5, 1.0, 1.25, 1.5


@dataclass(eq=False, slots=True)
class Target:
    """A run as something to write to. `over` says why it takes nothing any more.

    `create` is what creates it, until that is queued: before the first thing that is said of the run. With a `beat` the
    server hears of it every so many seconds; `heard` is when it last did, by the monotonic clock.
    """

    run_id: str
    over: str | None = None
    create: Create | None = None
    beat: float | None = None
    heard: float | None = None

    def due(self) -> float | None:
        """When the server has to hear of the run again, if it has to."""
        if self.beat is None or self.heard is None or self.over is not None:
            return None
        return self.heard + self.beat


@dataclass(slots=True)
class Create:
    """A run to be created before anything else of it is sent."""

    target: Target
    body: bytes
    # A run that is there already, with whatever content, is as good.
    attach: bool = False
    order: int = 0

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD_BYTES

    def call(self) -> Call:
        return Call("POST", "/api/runs", content=self.body, content_type="application/json", idempotent=True)


@dataclass(slots=True)
class Emission:
    """An event to be sent. `head` is the JSON of all of it but the payload."""

    target: Target
    type: str
    head: bytes
    payload: bytes = b""
    # A refused step of the run's status is no loss, because it says again what is known.
    optional: bool = False
    order: int = 0
    size: int = 0

    @property
    def lasting(self) -> bool:
        return True

    @property
    def vital(self) -> bool:
        """Whether a reader would misunderstand the run without it."""
        return self.type.startswith(("run.", "interrupt."))

    def line(self) -> bytes:
        return self.head[:-1] + b',"payload":' + self.payload + b"}"


@dataclass(slots=True)
class Delta(Emission):
    """Pieces of a text that is being written; never stored, so the first to go when there is too much."""

    pieces: list[str] = field(default_factory=list)
    characters: int = 0

    @property
    def lasting(self) -> bool:
        return False

    def takes(self, other: Delta) -> bool:
        return self.head == other.head and self.characters + other.characters <= DELTA_CHARACTERS

    def line(self) -> bytes:
        self.payload = encoded({"text": "".join(self.pieces)})
        # Explicitly: a dataclass with slots is another class than the one `super` would look for.
        return Emission.line(self)


def batch_call(run_id: str, emissions: list[Emission]) -> Call:
    """The request that stores these events, all or none."""
    body = b"[" + b",".join(emission.line() for emission in emissions) + b"]"
    path = f"/api/runs/{quote(run_id)}/events"
    # Each lasting event has an event_id, and deltas are taken out before a repeat that might double them.
    return Call("POST", path, content=body, content_type="application/json", idempotent=True)


Batch = Create | list[Emission]


class Outbox:
    """The queue. Deltas may fill half of it, events all of it; a quarter more is kept for the creation of runs, and
    another one for their ends and interrupts.
    """

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.events = 0
        self.bytes = 0
        self.last_order = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._queues: OrderedDict[Target, deque[Create | Emission]] = OrderedDict()
        self._creations: deque[int] = deque()
        self._in_flight: int | None = None

    def put(self, item: Create | Emission) -> bool:
        """Takes an item, or has no room for it."""
        queue = self._queues.get(item.target)
        if isinstance(item, Delta) and queue:
            last = queue[-1]
            if isinstance(last, Delta) and last.takes(item) and self._room(item):
                last.pieces += item.pieces
                last.characters += item.characters
                self._count(last, item.size - OVERHEAD_BYTES)
                return True
        if not self._room(item):
            return False
        self.last_order += 1
        item.order = self.last_order
        if queue is None:
            queue = self._queues[item.target] = deque()
        queue.append(item)
        if isinstance(item, Create):
            self._creations.append(item.order)
        self.events += 1
        self.bytes += item.size
        return True

    def take(self) -> Batch | None:
        """The next batch, which is then in flight until `landed`."""
        if not self._queues:
            return None
        target = min(self._queues, key=lambda target: self._queues[target][0].order)
        queue = self._queues[target]
        self._in_flight = queue[0].order
        head = self._pop(target, queue)
        if isinstance(head, Create):
            self._creations.popleft()
            return head
        batch, size = [head], head.size
        barrier = self._creations[0] if self._creations else self.last_order + 1
        while queue and len(batch) < BATCH_EVENTS and size + queue[0].size <= BATCH_BYTES and queue[0].order < barrier:
            emission = self._pop(target, queue)
            assert isinstance(emission, Emission)
            batch.append(emission)
            size += emission.size
        return batch

    def landed(self) -> None:
        """The batch that was taken is done."""
        self._in_flight = None

    def oldest(self) -> int | None:
        """The order of the oldest item that is queued or in flight."""
        heads = [queue[0].order for queue in self._queues.values()]
        return min([*heads, *([] if self._in_flight is None else [self._in_flight])], default=None)

    @property
    def full_batch(self) -> bool:
        return self.events >= BATCH_EVENTS or self.bytes >= BATCH_BYTES or bool(self._creations)

    def drop_all(self) -> int:
        """Forgets everything, and says how many lasting events that were."""
        lost = sum(isinstance(item, Emission) and item.lasting for queue in self._queues.values() for item in queue)
        self._queues.clear()
        self._creations.clear()
        self.events = self.bytes = 0
        return lost

    def forget(self, target: Target) -> tuple[int, bool]:
        """Forgets what is queued of a run: how many lasting events, and whether its creation was among it."""
        queue = self._queues.pop(target, deque())
        self.events -= len(queue)
        self.bytes -= sum(item.size for item in queue)
        created = [item.order for item in queue if isinstance(item, Create)]
        for order in created:
            self._creations.remove(order)
        return sum(isinstance(item, Emission) and item.lasting for item in queue), bool(created)

    def _room(self, item: Create | Emission) -> bool:
        if isinstance(item, Create):
            share = SHARE_OF_RUNS
        elif item.vital:
            share = SHARE_OF_ENDS
        else:
            share = SHARE_OF_EVENTS if item.lasting else SHARE_OF_DELTAS
        return self.events < self._max_events * share and self.bytes + item.size <= self._max_bytes * share

    def _count(self, item: Emission, size: int) -> None:
        item.size += size
        self.bytes += size

    def _pop(self, target: Target, queue: deque[Create | Emission]) -> Create | Emission:
        item = queue.popleft()
        if not queue:
            del self._queues[target]
        self.events -= 1
        self.bytes -= item.size
        return item


@dataclass(eq=False, slots=True)
class Flush:
    """Somebody waits until everything up to `order` has landed.

    The result says whether it has. An impatient one is content to hear that the server does not answer.
    """

    order: int
    patient: bool
    done: Future[bool] = field(default_factory=Future)

    def resolve(self, landed: bool) -> None:
        # Who waited may have given up.
        if self.done.set_running_or_notify_cancel():
            self.done.set_result(landed)
