"""Graphs and a model for the tests: what they say and do is known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import interrupt

USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


class ScriptedModel(BaseChatModel):
    """Gives the n-th of its replies when the conversation has n messages of a model; word by word when streamed."""

    replies: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **settings: Any) -> Runnable[Any, AIMessage]:
        return self

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        said = sum(isinstance(message, AIMessage) for message in messages)
        return self.replies[said].model_copy(update={"id": f"reply-{said}", "usage_metadata": USAGE})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        for word in str(reply.content).split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} ", id=reply.id))
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": position}
            for position, call in enumerate(reply.tool_calls)
        ]
        last = AIMessageChunk(content="", id=reply.id, tool_call_chunks=calls, usage_metadata=USAGE)  # type: ignore[arg-type]
        yield ChatGenerationChunk(message=last)


def calls(text: str, *wanted: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """A reply that calls tools, each given as its call's id, its name and its arguments."""
    return AIMessage(text, tool_calls=[{"id": id, "name": name, "args": args} for id, name, args in wanted])


@tool
def look_up(city: str) -> str:
    """Says what a city is like."""
    return f"{city} is fine"


@tool
def book(city: str) -> str:
    """Books a trip, once a person agrees."""
    agreed = interrupt({"kind": "approval", "prompt": f"Book {city}?", "city": city})
    return f"booked {city}: {agreed}"


def travel_agent(saver: BaseCheckpointSaver[Any]) -> Any:
    """Looks a city up, then another while it books, which a person has to agree to, then says so."""
    replies = [
        calls("I look", ("call-1", "look_up", {"city": "Rome"})),
        calls("and book", ("call-2", "look_up", {"city": "Bari"}), ("call-3", "book", {"city": "Rome"})),
        AIMessage("all booked"),
    ]
    return create_agent(ScriptedModel(replies=replies), [look_up, book], checkpointer=saver, name="travel")
