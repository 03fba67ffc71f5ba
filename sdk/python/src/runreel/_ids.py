"""Ids and times in the form that the wire contract requires."""

from __future__ import annotations

import hashlib
import os
import time
import unicodedata
import uuid
from datetime import datetime, timezone

# Maximum length of span ids and event ids.
ID_CHARACTERS = 128


def run_id() -> str:
    """A UUID version 7. With an id chosen by the client, a failed creation can be repeated without a second run."""
    millis = time.time_ns() // 1_000_000
    number = (millis << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_fresh_run_id(text: object) -> bool:
    """Whether the server would accept it as the id of a new run: a UUID version 7 at most an hour from now."""
    try:
        given = uuid.UUID(str(text))
    except ValueError:
        return False
    return given.version == 7 and str(given) == text and abs((given.int >> 80) / 1_000 - time.time()) < 3_600


def event_id() -> str:
    """A random id by which the server recognises a repeated event."""
    return os.urandom(16).hex()


def span_id(kind: str) -> str:
    """A random span id that begins with its kind, for people who read the log."""
    return f"{kind}-{os.urandom(6).hex()}"


def fitted(name: str, longest: int = ID_CHARACTERS) -> str:
    """The name as an id: unchanged if it is valid, else its digest. Different names get different ids."""
    fits = 0 < len(name) <= longest and not any(unicodedata.category(each) in ("Cc", "Cs") for each in name)
    return name if fits else f"id-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


def now() -> str:
    """The current time in UTC with microseconds, in the server's format."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
