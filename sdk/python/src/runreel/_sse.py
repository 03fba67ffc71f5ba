"""Server-sent events from bytes, by the HTML standard: any line ending, in chunks cut anywhere.

A parser of our own because it is short: packages for it impose a client's policies and leave resuming to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import RunreelError

BOM = b"\xef\xbb\xbf"
# No event is nearly this large. Without the bound, an endless line would fill the reader's memory.
LONGEST_FRAME = 16 * 1_048_576


@dataclass(frozen=True, slots=True)
class Frame:
    """One dispatched event. `id` is None when this frame carried none."""

    event: str
    data: str
    id: str | None = None


class Parser:
    """Feed it chunks, take frames. `retry_ms` is the reconnection time that the server sent last."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._line = bytearray()
        self._size = 0
        self._after_cr = False
        self._first = True
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that are complete with this chunk. `RunreelError` when one grows over 16 MiB."""
        if self._after_cr and chunk:
            # The last chunk ended with CR; a LF now is the second half of that line ending.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        # On bytes, `splitlines` splits at CR, LF and CR LF, and nothing else.
        for line in chunk.splitlines(keepends=True):
            self._line += line
            self._size += len(line)
            if self._size > LONGEST_FRAME:
                raise RunreelError(f"the event stream is malformed: an event has more than {LONGEST_FRAME} bytes")
            if line.endswith((b"\r", b"\n")):
                frame = self._take(bytes(self._line.rstrip(b"\r\n")))
                self._line.clear()
                if frame is not None:
                    yield frame

    def _take(self, line: bytes) -> Frame | None:
        if self._first:
            line, self._first = line.removeprefix(BOM), False
        if not line:
            return self._dispatch()
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            # Milliseconds. More digits are never meant, and Python refuses to parse thousands of them.
            self.retry_ms = int(value[:9])
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._event, self._data, self._id, self._size = "", [], None, 0
        return frame
