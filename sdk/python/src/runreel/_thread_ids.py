"""The thread ids that the wire contract allows."""

from __future__ import annotations

import re

_THREAD_ID = re.compile(r"[A-Za-z0-9._:@+-]{1,255}")


def is_thread_id(thread_id: object) -> bool:
    return thread_id is not None and _THREAD_ID.fullmatch(str(thread_id)) is not None


def checked_thread_id(thread_id: object) -> str:
    """The id as text. Raises ValueError for one the server would refuse, before anything is sent."""
    text = str(thread_id)
    if not _THREAD_ID.fullmatch(text):
        raise ValueError(f"thread_id must be 1 to 255 characters of A-Z a-z 0-9 . _ : @ + -, not {text[:300]!r}")
    return text
