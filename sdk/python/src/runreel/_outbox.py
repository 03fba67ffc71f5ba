"""The queue of unsent items: bounded, ordered, batched. Plain data; the caller holds the lock.

Events of one run are sent in the order they were queued. Between runs the order matters in one place: a child must be
created before its parent ends. So nothing overtakes the creation of a run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from ._http import Call, quote
from ._payload import encoded

BATCH_EVENTS = 500
BATCH_BYTES = 1_048_576
# Deltas of one span are merged up to this length, well under the bound of a payload.
DELTA_CHARACTERS = 8_192
# Estimated size of an event without its payload.
OVERHEAD_BYTES = 256
# The share of the queue's bounds that each kind may fill: the more a reader needs it, the larger.
SHARE_OF_DELTAS, SHARE_OF_EVENTS, SHARE_OF_RUNS, SHARE_OF_ENDS = 0.5, 1.0, 1.25, 1.5


@dataclass(eq=False, slots=True)
class Target:
    """A run as the destination of events. `over` is the reason why it accepts no more.

    `create` is its creation until that is queued, ahead of the run's first event. `beat` is the interval of heartbeats
    in seconds, None without a lease; `heard` is when the server last heard of the run, by the monotonic clock.
    """

    run_id: str
    over: str | None = None
    create: Create | None = None
    beat: float | None = None
    heard: float | None = None

    def due(self) -> float | None:
        """When the next heartbeat is due, by the monotonic clock, if one is needed."""
        if self.beat is None or self.heard is None or self.over is not None:
            return None
        return self.heard + self.beat


@dataclass(slots=True)
class Create:
    """A run to be created before anything else of it is sent."""

    target: Target
    body: bytes
    # An existing run with this id is accepted, whatever its fields.
    attach: bool = False
    order: int = 0

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD_BYTES

    def call(self) -> Call:
        return Call("POST", "/api/runs", content=self.body, content_type="application/json", idempotent=True)


@dataclass(slots=True)
class Emission:
    """An event to be sent. `head` is its JSON without the payload."""

    target: Target
    type: str
    head: bytes
    payload: bytes = b""
    # Not counted as lost if refused as `invalid_transition`, because the run already has the status.
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
    """Pieces of a text that is being written; never stored, so dropped first when the queue fills up."""

    pieces: list[str] = field(default_factory=list)
    characters: int = 0

    @property
    def lasting(self) -> bool:
        return False

    def takes(self, other: Delta) -> bool:
        return self.head == other.head and self.characters + other.characters <= DELTA_CHARACTERS

    def line(self) -> bytes:
        self.payload = encoded({"text": "".join(self.pieces)})
        # Not `super()`: a dataclass with slots is a new class, which a bare `super` does not find.
        return Emission.line(self)


def batch_call(run_id: str, emissions: list[Emission]) -> Call:
    """The request that stores these events, all or none."""
    body = b"[" + b",".join(emission.line() for emission in emissions) + b"]"
    path = f"/api/runs/{quote(run_id)}/events"
    # Lasting events have an event_id, and deltas are removed before a repeat that could duplicate them.
    return Call("POST", path, content=body, content_type="application/json", idempotent=True)


Batch = Create | list[Emission]


class Outbox:
    """The queue. Deltas may fill half of it, events all of it; another quarter is reserved for the creation of runs,
    and one more for their ends and interrupts.
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
        """Queues an item; False when there is no room for it."""
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
        """Marks the batch in flight as done."""
        self._in_flight = None

    def oldest(self) -> int | None:
        """The order of the oldest item that is queued or in flight."""
        heads = [queue[0].order for queue in self._queues.values()]
        return min([*heads, *([] if self._in_flight is None else [self._in_flight])], default=None)

    @property
    def full_batch(self) -> bool:
        return self.events >= BATCH_EVENTS or self.bytes >= BATCH_BYTES or bool(self._creations)

    def drop_all(self) -> int:
        """Drops everything, and returns the number of lasting events lost."""
        lost = sum(isinstance(item, Emission) and item.lasting for queue in self._queues.values() for item in queue)
        self._queues.clear()
        self._creations.clear()
        self.events = self.bytes = 0
        return lost

    def forget(self, target: Target) -> tuple[int, bool]:
        """Drops a run's queued items; returns the number of lasting events, and whether its creation was among them."""
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
    """A caller that waits until everything up to `order` has landed.

    `done` is whether it has. If not `patient`, it is False as soon as the server does not answer.
    """

    order: int
    patient: bool
    done: Future[bool] = field(default_factory=Future)

    def resolve(self, landed: bool) -> None:
        # The caller may have cancelled the wait.
        if self.done.set_running_or_notify_cancel():
            self.done.set_result(landed)
