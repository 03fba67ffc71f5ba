"""The thread that sends. Each client has one, also an asynchronous client: a busy event loop does not delay it, and
what is queued survives the end of an event loop.

It never raises into the program it reports on. Failures are counted, and each is logged once.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from contextlib import suppress
from typing import Literal

import httpx2

from ._http import backoff, retry_after, wrong
from ._leases import Kept, Leases, renew
from ._outbox import Batch, Create, Emission, Flush, Outbox, Target, batch_call
from ._sync.transport import Transport
from ._waiting import landed
from .errors import ApiError, ConnectionFailed, EventsDropped, RunreelError

OnError = Literal["warn", "raise", "ignore"]
CLOSE_TIMEOUT = 5.0
FULL = "the queue is full"
LONGEST_NAP = 30.0
# Attempts at a server that answers 500, rather than being busy or unreachable.
ATTEMPTS_AT_A_FAILING_SERVER = 5

log = logging.getLogger("runreel")
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()
# Senders with queued items, kept alive even if the program no longer references them.
_busy: set[Sender] = set()


class Sender:
    """Takes items at any time from any thread, sends them in batches, and renews the leases of their runs."""

    def __init__(
        self, transport: Transport, *, on_error: OnError, max_events: int, max_bytes: int, flush_interval: float
    ) -> None:
        if on_error not in ("warn", "raise", "ignore"):
            raise ValueError('on_error must be "warn", "raise" or "ignore"')
        self._transport = transport
        self._on_error = on_error
        self._bounds = (max_events, max_bytes)
        self._interval = flush_interval
        self._closed = False
        self._begin()
        _senders.add(self)

    def _begin(self) -> None:
        """The state of one process. A forked process has an empty queue, because its parent sends what was queued."""
        self.dropped = 0
        # Reentrant: a finaliser that emits may run while this thread holds it.
        self._wake = threading.Condition(threading.RLock())
        self._outbox = Outbox(*self._bounds)
        self._flushes: list[Flush] = []
        self._leases = Leases()
        self._thread: threading.Thread | None = None
        self._abandon = threading.Event()
        self._failure: RunreelError | None = None
        self._pending: RunreelError | None = None
        self._reported: set[str] = set()

    def begin(self, target: Target) -> None:
        """Queues the creation of a run, unless that was done before."""
        self._take(target, None)

    def put(self, emission: Emission) -> None:
        """Queues an event, behind the creation of its run, and returns at once.

        With `on_error="raise"`, raises an earlier error.
        """
        self._take(emission.target, emission)

    def _take(self, target: Target, emission: Emission | None) -> None:
        self.raise_pending()
        lost, why = 0, None
        with self._wake:
            # Under the lock, so that no other thread's event overtakes the creation.
            create, target.create = target.create, None
            for item in (create, emission):
                if item is not None:
                    refused = target.over or ("the client is closed" if self._closed else None)
                    lost += self._queue(item) if refused is None else isinstance(item, Create) or item.lasting
                    why = why or refused
        # Without the lock, because a logging handler may emit.
        self._lost(lost, why or FULL)

    def _queue(self, item: Create | Emission) -> int:
        """Queues an item; returns the number of lasting events lost for lack of room."""
        lost = 0
        if not self._outbox.put(item):
            if isinstance(item, Emission) and not item.vital:
                return int(item.lasting)
            # Better no run than one without its beginning or its end.
            lost, created = self._outbox.forget(item.target)
            self._settle()
            if isinstance(item, Create) or created or not self._outbox.put(item):
                self._end(item.target, FULL)
                return lost + 1
        _busy.add(self)
        self._start()
        if self._outbox.events == 1 or self._outbox.full_batch:
            self._wake.notify()
        return lost

    def keep(self, run: Kept) -> None:
        """Renews the lease of a run until it is ended here, released, or no longer referenced."""
        with self._wake:
            self._leases.keep(run)
            if run._target.heard is not None:
                self._start()
                self._wake.notify()

    def release(self, run: Kept) -> None:
        """Stops renewing the lease of a run."""
        with self._wake:
            self._leases.release(run)

    def flush(self, *, patient: bool) -> Future[bool]:
        """Done once what is queued now is stored, rejected or dropped; False if impatient and the server is away."""
        with self._wake:
            flush = Flush(self._outbox.last_order, patient)
            if self._outbox.oldest() is None:
                flush.resolve(True)
            elif not patient and self._failure is not None:
                flush.resolve(False)
            else:
                self._flushes.append(flush)
                self._wake.notify()
            return flush.done

    def raise_pending(self) -> None:
        """With `on_error="raise"`, raises the first error of the background, once."""
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error

    def upload_failed(self, name: str, error: Exception) -> None:
        """Counts and reports an artifact that was not uploaded like a dropped event."""
        self._lost(1, f"the artifact {name} was not uploaded: {error}")
        self.raise_pending()

    def raise_unsent(self) -> None:
        """With `on_error="raise"`, raises why a flush failed."""
        self.raise_pending()
        if self._on_error == "raise":
            raise self._failure or ConnectionFailed(f"{self._transport.url} did not accept the events in time")

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Sends what is queued, for at most `timeout` seconds, and ends the thread. What is left is dropped."""
        thread = self._thread
        if not self._closed and thread is not None and thread.is_alive():
            landed(self.flush(patient=True), timeout)
        with self._wake:
            self._closed = True
            self._abandon.set()
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        with self._wake:
            lost = self._outbox.drop_all()
            _busy.discard(self)
            self._settle()
        self._lost(lost, f"{self._transport.url} did not accept them in time")
        if self.dropped > lost and self._on_error == "warn":
            log.warning("%d events did not reach Runreel at %s", self.dropped, self._transport.url)

    def disconnect(self) -> None:
        """Closes the connections it sent on. Call it after `close`, when nothing else needs them."""
        self._transport.close()

    # The thread.

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=_work, args=(_held_weakly(self), self._wake), name="runreel", daemon=True)
            # An interpreter that is shutting down starts no threads; what is queued then is dropped.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread
                _close_with_the_process()

    def _idle(self) -> bool:
        return not self._outbox.events and not self._closed

    def _nap(self) -> float:
        """Seconds to sleep while nothing is queued; 0 when there is work."""
        return min(LONGEST_NAP, self._leases.due_in()) if self._idle() else 0.0

    def _send_next(self) -> bool:
        """Sends the next batch; False when the sender is closed."""
        with self._wake:
            due = self._leases.take_due()
        for run in renew(due, self._transport):
            self.release(run)
        with self._wake:
            if self._closed or not self._outbox.events:
                return not self._closed
            if not self._flushes and not self._outbox.full_batch:
                # Events that arrive within the interval share the request.
                self._wake.wait(self._interval)
            batch = self._outbox.take()
        try:
            if batch is not None:
                self._deliver(batch)
        except Exception as error:
            # A bug here must not end the thread: the remaining items would wait for ever.
            self._lost(len(batch) if isinstance(batch, list) else 1, repr(error))
        finally:
            with self._wake:
                self._outbox.landed()
                self._settle()
                if self._idle():
                    _busy.discard(self)
        return True

    def _deliver(self, batch: Batch) -> None:
        target = batch.target if isinstance(batch, Create) else batch[0].target
        if target.over is not None:
            self._lost(_lasting(batch), target.over)
            return
        error = self._insist(batch)
        if error is None or (isinstance(batch, Create) and batch.attach and error.code == "run_exists"):
            target.heard = time.monotonic()
            return
        if isinstance(batch, Create):
            self._end(target, f"the run was not created: {error}")
            self._report(error)
            return
        if len(batch) > 1 and error.status >= 400 and error.status not in (401, 403, 404):
            # One invalid event has the whole batch refused; sent one by one, the others are stored.
            for emission in batch:
                self._deliver([emission])
            return
        if error.code in ("run_ended", "not_found"):
            self._end(target, str(error))
        if not (batch[0].optional and error.code == "invalid_transition"):
            self._lost(_lasting(batch), str(error))
            self._report(error)

    def _insist(self, batch: Batch) -> ApiError | None:
        """Sends until the answer is final. Returns a refusal, or None on success or when nothing is left to send."""
        failures = 0
        while not self._abandon.is_set():
            call = batch.call() if isinstance(batch, Create) else batch_call(batch[0].target.run_id, batch)
            wait, stored = None, True
            try:
                response = self._transport.attempt(call)
            except httpx2.TransportError as error:
                stored = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
                failure: RunreelError = ConnectionFailed(f"{self._transport.url}: {error or type(error).__name__}")
            else:
                refused = wrong(response)
                if refused is None:
                    self._recovered()
                    return None
                if response.status_code != 429 and response.status_code < 500:
                    self._recovered()
                    return refused
                if response.status_code == 500 and failures + 1 >= ATTEMPTS_AT_A_FAILING_SERVER:
                    return refused
                failure, wait, stored = refused, retry_after(response), refused.code not in ("busy", "unavailable")
            if stored and isinstance(batch, list):
                # The server may have received them, and recognises only repeated lasting events.
                batch[:] = [emission for emission in batch if emission.lasting]
                if not batch:
                    return None
            failures += 1
            self._fails(failure)
            self._abandon.wait(backoff(failures) if wait is None else wait)
        self._lost(_lasting(batch), f"{self._transport.url} did not accept them in time")
        return None

    # Reporting.

    def _fails(self, error: RunreelError) -> None:
        with self._wake:
            self._failure = error
            for flush in self._flushes:
                if not flush.patient:
                    flush.resolve(False)
            self._flushes = [flush for flush in self._flushes if flush.patient]
        self._warn_once("unreachable", f"{error}; events are queued, up to a bound, until the server accepts them")

    def _recovered(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._reported.discard("unreachable")

    def _settle(self) -> None:
        oldest = self._outbox.oldest()
        waiting = []
        for flush in self._flushes:
            if oldest is None or flush.order < oldest:
                flush.resolve(True)
            else:
                waiting.append(flush)
        self._flushes = waiting

    def _end(self, target: Target, why: str) -> None:
        target.over = target.over or why

    def _lost(self, count: int, why: str) -> None:
        if count:
            with self._wake:
                self.dropped += count
            self._report(EventsDropped(count, why), key=why)

    def _report(self, error: RunreelError, key: str | None = None) -> None:
        if self._on_error == "raise":
            self._pending = self._pending or error
        else:
            self._warn_once(key or str(error), str(error))

    def _warn_once(self, key: str, text: str) -> None:
        if self._on_error == "warn" and key not in self._reported and len(self._reported) < 100:
            self._reported.add(key)
            log.warning("%s", text)


def _lasting(batch: Batch) -> int:
    return sum(emission.lasting for emission in batch) if isinstance(batch, list) else 0


def _work(held: weakref.ref[Sender], wake: threading.Condition) -> None:
    """The thread. It waits without a reference to the sender, and ends when that is garbage-collected."""
    while True:
        with wake:
            while (sender := held()) is not None and (nap := sender._nap()) > 0:
                del sender
                if held() is not None:
                    # Bounded, because a garbage collection in this thread would notify before it waits.
                    wake.wait(nap)
        if sender is None or not sender._send_next():
            return
        del sender


def _held_weakly(sender: Sender) -> weakref.ref[Sender]:
    wake = sender._wake

    def forgotten(held: weakref.ref[Sender]) -> None:
        # Without waiting: after a fork the lock may never be released, and the thread wakes up periodically.
        if wake.acquire(blocking=False):
            wake.notify_all()
            wake.release()

    return weakref.ref(sender, forgotten)


def _close_with_the_process() -> None:
    """A child of `multiprocessing` ends with `os._exit`, which skips `atexit`; its own finalisers still run."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize  # noqa: PLC0415

        Finalize(None, _close_all, exitpriority=0)


@atexit.register
def _close_all() -> None:
    for sender in list(_senders):
        if not sender._closed:
            sender.close()


def _after_fork() -> None:
    _busy.clear()
    for sender in list(_senders):
        sender._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
