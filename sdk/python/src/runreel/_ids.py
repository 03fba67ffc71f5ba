"""Ids and times as the wire contract wants them."""

from __future__ import annotations

import hashlib
import os
import time
import unicodedata
import uuid
from datetime import datetime, timezone

# Of the ids of spans and of events.
ID_CHARACTERS = 128


def run_id() -> str:
    """A UUID version 7. A run whose id the client makes can be created again after a failure, and is there once."""
    millis = time.time_ns() // 1_000_000
    number = (millis << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_fresh_run_id(text: object) -> bool:
    """Whether the server would take it as the id of a run that begins now: a UUID version 7 of this hour."""
    try:
        given = uuid.UUID(str(text))
    except ValueError:
        return False
    return given.version == 7 and str(given) == text and abs((given.int >> 80) / 1_000 - time.time()) < 3_600


def event_id() -> str:
    """A name by which the server knows an event again."""
    return os.urandom(16).hex()


def span_id(kind: str) -> str:
    """A span's id with a hint of what it is, for people who read the log."""
    return f"{kind}-{os.urandom(6).hex()}"


def fitted(name: str, longest: int = ID_CHARACTERS) -> str:
    """A name as an id: itself or, where it cannot be one, its digest. Names that differ have ids that differ."""
    fits = 0 < len(name) <= longest and not any(unicodedata.category(each) in ("Cc", "Cs") for each in name)
    return name if fits else f"id-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


def now() -> str:
    """The present in UTC with six digits, as the server writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
