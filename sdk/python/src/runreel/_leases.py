"""Renewal of the leases of a program's active runs while it emits nothing for them."""

from __future__ import annotations

import time
import weakref
from typing import Protocol

import httpx2

from . import _routes
from ._outbox import Target
from ._sync.transport import Transport


class Kept(Protocol):
    """A run that this program works on."""

    _target: Target

    @property
    def ended(self) -> bool: ...


class Leases:
    """The active runs, by weak reference: an abandoned one is not renewed. The caller holds the sender's lock."""

    def __init__(self) -> None:
        self._runs: weakref.WeakSet[Kept] = weakref.WeakSet()

    def keep(self, run: Kept) -> None:
        self._runs.add(run)

    def release(self, run: Kept) -> None:
        self._runs.discard(run)

    def due_in(self) -> float:
        """Seconds until the next lease must be renewed; 0 when one is due, infinite without leases."""
        now = time.monotonic()
        due = [at - now for run in self._runs if not run.ended and (at := run._target.due()) is not None]
        return max(0.0, min(due, default=float("inf")))

    def take_due(self) -> list[Kept]:
        """The runs whose leases are due; they then count as renewed."""
        now = time.monotonic()
        due = [run for run in self._runs if not run.ended and (at := run._target.due()) is not None and at <= now]
        for run in due:
            run._target.heard = now
        return due


def renew(runs: list[Kept], transport: Transport) -> list[Kept]:
    """Renews these leases, and returns the runs that no longer exist."""
    gone = []
    for run in runs:
        try:
            if transport.attempt(_routes.heartbeat(run._target.run_id)).status_code == 404:
                gone.append(run)
        except httpx2.TransportError:
            # The server is unreachable for all of them. Other refusals show in its answers to events.
            break
    return gone
