"""The content of an artifact: bytes, or a file that is read piece by piece each time it is sent."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ._events import ArtifactRecord
from ._payload import plain, whole_characters
from .errors import ArtifactTooLarge

# The server's bound.
ARTIFACT_BYTES = 1_073_741_824
PIECE_BYTES = 262_144

# The result of an upload: the server's description of the artifact, or None if it failed.
Stored: TypeAlias = ArtifactRecord | None
AsyncStored: TypeAlias = Awaitable[Stored]


@dataclass(frozen=True, slots=True)
class Upload:
    """An artifact to upload to a run."""

    name: str
    media_type: str
    content: bytes | Path
    parent_span_id: str | None

    def body(self) -> bytes | File:
        return File(self.content) if isinstance(self.content, Path) else self.content

    def async_body(self) -> bytes | AsyncFile:
        return AsyncFile(self.content) if isinstance(self.content, Path) else self.content


class File:
    """The pieces of a file; each iteration starts at the beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


class AsyncFile:
    """`File` for event loops: the file is read in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aiter__(self) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread(self._path.open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece
        finally:
            file.close()


def upload_of(
    name: str, data: object, path: str | Path | None, media_type: str | None, parent_span_id: str | None
) -> Upload:
    """The content to upload. TypeError for invalid arguments, OSError for a file that cannot be read."""
    if (data is None) == (path is None):
        raise TypeError("an artifact needs either data or a path")
    if not isinstance(name, str):
        raise TypeError("the name of an artifact must be a string")
    guess = mimetypes.guess_type(name if path is None else str(path))[0]
    content: bytes | Path
    if path is not None:
        content = Path(path)
        with content.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
        guess = guess or "application/octet-stream"
    elif isinstance(data, (bytes, bytearray, memoryview)):
        content, guess = bytes(data), guess or "application/octet-stream"
    elif isinstance(data, str):
        content, guess = whole_characters(data).encode(), guess or "text/plain"
    else:
        content, guess = json.dumps(plain(data), ensure_ascii=False).encode(), guess or "application/json"
    if isinstance(content, bytes):
        size = len(content)
    if size > ARTIFACT_BYTES:
        raise ArtifactTooLarge(f"{name} has {size} bytes; an artifact can have at most {ARTIFACT_BYTES}")
    return Upload(whole_characters(name), media_type or guess, content, parent_span_id)
