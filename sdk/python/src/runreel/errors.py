"""What can go wrong, as exceptions. All of them are `RunreelError`."""

from __future__ import annotations


class RunreelError(Exception):
    """Base class of all exceptions of this package."""


class ConnectionFailed(RunreelError):
    """No answer from the server: it is down, unreachable, or timed out, also after all retries."""


class ApiError(RunreelError):
    """The server refused a request (RFC 9457 problem details).

    `code` is stable and meant for programs; `title`, `detail` and `hint` are for people; `field` names the invalid
    member or parameter. An answer that is not Runreel's, such as a proxy's, has the code `http_<status>`.
    """

    def __init__(
        self,
        status: int,
        code: str,
        *,
        title: str = "",
        detail: str = "",
        hint: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(status, code, title, detail, hint, field)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        text = f"{self.code}: {self.detail or self.title or f'status {self.status}'}"
        if self.field:
            text += f" [{self.field}]"
        if self.hint:
            text += f" ({self.hint})"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled between processes; the default would not pass the keyword arguments.
        return ApiError, (self.status, self.code), self.__dict__


class StreamGap(RunreelError):
    """Events after the reader's cursor were deleted from the log; the stream would continue after them.

    In the stream of one run both members are seqs. In a feed `requested_after` is a cursor and `first_seq` is None.
    """

    def __init__(self, requested_after: int | str | None, first_seq: int | None) -> None:
        super().__init__(requested_after, first_seq)
        self.requested_after = requested_after
        self.first_seq = first_seq

    def __str__(self) -> str:
        behind = "" if self.first_seq is None else f"; the log continues with {self.first_seq}"
        return f"events after {self.requested_after} were deleted{behind}"


class EventsDropped(RunreelError):
    """`count` events will not reach the log: the queue was full, or the server did not accept them in time."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(count, why)
        self.count = count
        self.why = why

    def __str__(self) -> str:
        return f"{self.count} events were dropped: {self.why}"


class ArtifactTooLarge(RunreelError):
    """An artifact over 1 GiB, the server's limit."""


class RunEnded(RunreelError):
    """The run ended before what was awaited could happen."""
