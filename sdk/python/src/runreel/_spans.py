"""What a program reports about itself: steps, tool calls, messages, log lines, nested in a run and in each other.

Except for `artifact`, nothing here uses the network: a call builds an event and passes it on. So the code is the same
for threads and for event loops. Nesting follows the object: `step.tool(...)` is nested in `step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Protocol

from . import _ids
from ._failure import described
from ._uploads import Upload, upload_of

if TYPE_CHECKING:
    # Type checkers bundle it; at run time the default is not needed.
    from typing_extensions import TypeVar

    Uploaded_co = TypeVar("Uploaded_co", default=object, covariant=True)
else:
    from typing import TypeVar

    Uploaded_co = TypeVar("Uploaded_co", covariant=True)

# The server keeps a text that is being written up to this size.
STREAMED_BYTES = 1_000_000
PIECE_CHARACTERS = 4_096

Span = TypeVar("Span", bound="Step[object]")
LogLevel = Literal["debug", "info", "warn", "error"]


class Emit(Protocol):
    """Passes an event on. A delta is an event with a `text` and no payload."""

    def __call__(
        self, type: str, payload: object = None, *, members: Mapping[str, str | None], text: str | None = None
    ) -> None: ...


class Scope(Generic[Uploaded_co]):
    """A run or one of its spans: events emitted here belong to it. `Uploaded_co` is what `artifact` returns."""

    def __init__(self, emit: Emit, run_id: str, span_id: str | None, upload: Callable[[Upload], Uploaded_co]) -> None:
        self.run_id = run_id
        self.span_id = span_id
        self._emit = emit
        # Returns the answer, or in an event loop an awaitable of it.
        self._upload = upload
        self._message: Message | None = None
        # The open spans in it, in the order they began.
        self._open: dict[Step[object], None] = {}
        self.log = Log(self)

    def event(
        self,
        type: str,
        payload: object = None,
        *,
        span_id: str | None = None,
        parent_span_id: str | None = None,
        event_id: str | None = None,
    ) -> None:
        """Emits an event of any type the wire contract allows, such as `custom.indexed`.

        `payload` is anything; values without a JSON form are replaced, values over 64 KiB are truncated and marked (see
        the README). `parent_span_id` defaults to the span this is called on. With an `event_id` of your own, a repeat,
        also by another process, is stored once. Waits only in a runner's handler thread with 10 000 unsent events.
        """
        if not isinstance(type, str):
            raise TypeError("the type of an event must be a string")
        members = {"span_id": span_id, "parent_span_id": parent_span_id or self.span_id, "event_id": event_id}
        self._emit(type, payload, members=members)

    def step(self, name: str, *, span_id: str | None = None) -> Step[Uploaded_co]:
        """`with run.step("plan") as step:` — a step with a start and an end.

        It starts with this call. Without a block it ends with `complete` or `fail`, or with its parent.
        """
        step = Step(self, "step", name, span_id)
        step._start({"name": name})
        return step

    def tool(self, name: str, args: object = None, *, span_id: str | None = None) -> Tool[Uploaded_co]:
        """`with run.tool("search", {"q": "…"}) as tool: tool.result = …` — a tool call.

        It starts and ends like a step.
        """
        tool = Tool(self, name, args, span_id)
        tool._start({"name": name, "args": args})
        return tool

    def message(
        self,
        content: str | Sequence[Mapping[str, object]] | None = None,
        *,
        role: str = "assistant",
        usage: Mapping[str, object] | None = None,
        model: str | None = None,
        span_id: str | None = None,
    ) -> Message:
        """A message: complete, or piece by piece.

        With `content`, a text or parts such as `{"type": "text", "text": "…"}`, it is emitted as a whole. Without, it
        ends the message that `token` started here, with this `usage` and `model`; and `with run.message() as message:`
        starts one that is written with `message.token("…")`. `usage` contains numbers, such as
        `{"input_tokens": 9, "output_tokens": 3}`.
        """
        if content is not None and not isinstance(content, (str, Sequence)):
            raise TypeError("the content of a message must be a string or a list of parts")
        begun, self._message = self._message, None
        if begun is not None:
            if content is None:
                begun.usage, begun.model = usage or begun.usage, model or begun.model
            begun.close()
        message = Message(self, role, usage, model, span_id)
        if content is not None:
            message.close(content)
        return message

    def token(self, text: str) -> None:
        """Adds a piece to the message being written here; the first one starts it.

        It ends with the next `message(...)`, or with the run or span. Readers see the pieces live; the whole message
        is stored.
        """
        message = self._message or Message(self, "assistant", None, None, None)
        message.token(text)
        self._message = message

    def artifact(
        self,
        name: str,
        data: object = None,
        *,
        path: str | Path | None = None,
        media_type: str | None = None,
    ) -> Uploaded_co:
        """Uploads an artifact: `data` (a text, bytes, or anything JSON), or the file at `path`, of at most 1 GiB.

        It waits for the upload (a file is sent piece by piece) and returns the server's description: a dict with
        `artifact_id`, `name`, `media_type`, `size`, `sha256` and `url`. In an async run it must be awaited:
        `await run.artifact(…)`. Failures are reported as for events, and None is returned. OSError for a file that
        cannot be read, `ArtifactTooLarge` for one over the bound.
        """
        return self._upload(upload_of(name, data, path, media_type, self.span_id))

    def _finish(self, error: BaseException | str | None) -> None:
        """Ends the message and all open spans in it, the innermost first."""
        self._finish_message()
        for span in reversed(list(self._open)):
            span._end(error)

    def _finish_message(self) -> None:
        begun, self._message = self._message, None
        if begun is not None:
            begun.close()


class Log:
    """`run.log.info("indexed", files=3)`: a log line with a level and fields."""

    def __init__(self, scope: Scope[object]) -> None:
        self._scope = scope

    def _line(self, level: LogLevel, message: str, fields: Mapping[str, object]) -> None:
        self._scope.event(f"log.{level}", {"message": message, **fields})

    def debug(self, message: str, /, **fields: object) -> None:
        """A debug line."""
        self._line("debug", message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        """An informational line."""
        self._line("info", message, fields)

    def warn(self, message: str, /, **fields: object) -> None:
        """A warning."""
        self._line("warn", message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        """An error line."""
        self._line("error", message, fields)


class Step(Scope[Uploaded_co]):
    """A span: `….started` when it is made, `….completed` or `….failed` (with `duration_ms`) when its block is left."""

    def __init__(self, within: Scope[Uploaded_co], kind: str, name: str, span_id: str | None) -> None:
        super().__init__(within._emit, within.run_id, span_id or _ids.span_id(kind), within._upload)
        self.name = name
        self._kind = kind
        self._within = within
        self._members = {"span_id": self.span_id, "parent_span_id": within.span_id}
        self._began = 0.0

    def complete(self) -> None:
        """Ends it with `….completed`, for a span without a block. Only the first end counts."""
        self._end(None)

    def fail(self, error: BaseException | str) -> None:
        """Ends it with `….failed` and the error; an exception includes its stack and its causes."""
        self._end(error)

    def __enter__(self: Span) -> Span:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(error)

    def _start(self, payload: Mapping[str, object]) -> None:
        self._began = time.monotonic()
        self._within._open[self] = None
        self._emit(f"{self._kind}.started", payload, members=self._members)

    def _outcome(self) -> dict[str, object]:
        return {}

    def _end(self, error: BaseException | str | None) -> None:
        if self not in self._within._open:
            return
        del self._within._open[self]
        self._finish(error)
        word, body = ("completed", self._outcome()) if error is None else ("failed", {"error": described(error)})
        payload = {"name": self.name, **body, "duration_ms": _milliseconds_since(self._began)}
        self._emit(f"{self._kind}.{word}", payload, members=self._members)


class Tool(Step[Uploaded_co]):
    """A tool call. Set `result` to its result."""

    def __init__(self, within: Scope[Uploaded_co], name: str, args: object, span_id: str | None) -> None:
        super().__init__(within, "tool", name, span_id)
        self.args = args
        self.result: object = None

    def complete(self, result: object = None) -> None:
        """Ends it with `tool.completed` and its result."""
        self.result = self.result if result is None else result
        self._end(None)

    def _outcome(self) -> dict[str, object]:
        return {"result": self.result}


class Message:
    """A message that is being written. `usage` and `model` may be set until it ends."""

    _delta = "message.delta"

    def __init__(
        self,
        within: Scope[object],
        role: str,
        usage: Mapping[str, object] | None,
        model: str | None,
        span_id: str | None,
    ) -> None:
        self.span_id = span_id or _ids.span_id("message")
        self.role = role
        self.usage = usage
        self.model = model
        self._emit = within._emit
        self._members = {"span_id": self.span_id, "parent_span_id": within.span_id}
        self._pieces: list[str] = []
        self._streamed = 0
        self._began = time.monotonic()
        self._closed = False

    @property
    def text(self) -> str:
        """The text written so far."""
        return "".join(self._pieces)

    def token(self, text: str) -> None:
        """Adds a piece. Readers see it almost at once; it is stored when the message ends."""
        if not isinstance(text, str):
            raise TypeError("a piece of a message must be a string")
        if self._closed or not text:
            return
        self._pieces.append(text)
        self._streamed += len(text.encode(errors="replace"))
        if self._streamed > STREAMED_BYTES:
            return
        for begin in range(0, len(text), PIECE_CHARACTERS):
            self._emit(self._delta, members=self._members, text=text[begin : begin + PIECE_CHARACTERS])

    def close(self, content: str | Sequence[Mapping[str, object]] | None = None) -> None:
        """Ends the message: `message.completed` with `content`, or with what was written; at most once."""
        self._close(content, None)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The contract has no failed message: the text so far is kept, together with the error.
        self._close(None, error)

    def _close(self, content: str | Sequence[Mapping[str, object]] | None, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        content = self.text if content is None else content
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        payload: dict[str, object] = {"role": self.role, "content": parts}
        if self.model is not None:
            payload["model"] = self.model
        if self.usage is not None:
            payload["usage"] = self.usage
        if error is not None:
            payload["error"] = described(error)
        if self._pieces:
            payload["duration_ms"] = _milliseconds_since(self._began)
        self._emit("message.completed", payload, members=self._members)


class Thought(Message):
    """A model's reasoning that is being written: live deltas, then `reasoning.completed` with the whole text."""

    _delta = "reasoning.delta"

    def _close(self, content: str | Sequence[Mapping[str, object]] | None, error: BaseException | None) -> None:
        if not self._closed:
            self._closed = True
            text = content if isinstance(content, str) else self.text
            self._emit("reasoning.completed", {"text": text}, members=self._members)


def question(prompt: str, details: object, expires_in: float | None, kind: str) -> dict[str, object]:
    """The payload of `interrupt.requested` for a question to a person. `expires_in` is in seconds from now."""
    payload: dict[str, object] = {"kind": kind, "prompt": prompt}
    if details is not None:
        payload["details"] = details
    if expires_in is not None:
        try:
            payload["expires_at"] = (datetime.now(timezone.utc) + timedelta(seconds=expires_in)).isoformat()
        except OverflowError:
            raise ValueError("expires_in is too large: the date is out of range") from None
    return payload


def _milliseconds_since(began: float) -> float:
    return round((time.monotonic() - began) * 1_000, 3)
