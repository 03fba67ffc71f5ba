"""A model's answer to one request of a Pydantic AI run, from its first token to its end."""

from __future__ import annotations

import time

from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from ._pydantic_messages import completed
from ._spans import Thought
from ._sync.run import Run

STREAMED = (PartStartEvent, PartDeltaEvent, PartEndEvent)


class Answer:
    """A message that is being written, and the model's reasoning during it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()
        self._message = run.message()
        # By the index of the part.
        self._thoughts: dict[int, Thought] = {}

    def take(self, event: AgentStreamEvent) -> None:
        """Takes an event of the model's stream."""
        if isinstance(event, PartStartEvent):
            self._write(event.index, event.part, getattr(event.part, "content", None))
        elif isinstance(event, PartDeltaEvent):
            self._write(event.index, event.delta, getattr(event.delta, "content_delta", None))
        elif isinstance(event, PartEndEvent) and event.index in self._thoughts:
            self._thoughts[event.index].close(getattr(event.part, "content", None))

    def complete(self, response: ModelResponse) -> None:
        """Takes the whole answer, which supersedes what was streamed."""
        thoughts = [part.content for part in response.parts if isinstance(part, ThinkingPart) and part.content]
        self._conclude()
        # Of a model that does not stream, or whose events were consumed elsewhere.
        for text in thoughts[len(self._thoughts) :]:
            Thought(self._run, "assistant", None, None, None).close(text)
        for attempt in response.failed_attempts or ():
            reason = attempt.error or attempt.outcome
            self._run.log.warn("a model did not answer", model=attempt.model_name, reason=reason)
        took = round((time.monotonic() - self._began) * 1_000, 3)
        payload = {**completed(response), "duration_ms": took}
        self._run.event("message.completed", payload, span_id=self._message.span_id)

    def break_off(self, error: BaseException | None) -> None:
        """Ends the message with its text so far and the error, since the contract has no failed message."""
        self._conclude()
        if self._message.text:
            self._message._close(None, error)

    def _write(self, index: int, part: object, text: str | None) -> None:
        if not text:
            return
        if isinstance(part, (TextPart, TextPartDelta)):
            self._message.token(text)
        elif isinstance(part, (ThinkingPart, ThinkingPartDelta)):
            if index not in self._thoughts:
                self._thoughts[index] = Thought(self._run, "assistant", None, None, None)
            self._thoughts[index].token(text)

    def _conclude(self) -> None:
        for thought in self._thoughts.values():
            thought.close()
