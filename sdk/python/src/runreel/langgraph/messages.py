"""Converts LangChain's messages, answers and tool results to the payloads of Runreel's events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.types import Command, Interrupt

from .._payload import plain

ROLES = {"human": "user", "ai": "assistant"}
PROMPT_CHARACTERS = 512
_PROMPT_MEMBERS = ("prompt", "question", "message", "description", "query")
# How deep a state is searched for messages; deeper ones are shown as they print.
_LEVELS = 6


def role_of(message: BaseMessage) -> str:
    """`user`, `assistant`, `system`, `tool`, or the type of another kind of message."""
    return ROLES.get(message.type.removesuffix("MessageChunk").lower(), message.type)


def parts_of(message: BaseMessage) -> list[Mapping[str, object]]:
    """The content of a message as parts, such as `{"type": "text", "text": "…"}` and `{"type": "tool_call", …}`."""
    try:
        return list(message.content_blocks)
    except Exception:
        # A provider's own form of content that LangChain cannot translate.
        content = message.content
        return (
            [{"type": "text", "text": content}]
            if isinstance(content, str)
            else cast("list[Mapping[str, object]]", content)
        )


def completed(response: LLMResult, model: str | None) -> dict[str, object]:
    """The payload of `message.completed` for what a model has answered."""
    generation = response.generations[0][0] if response.generations and response.generations[0] else None
    if not isinstance(generation, ChatGeneration):
        text = generation.text if generation is not None else ""
        return _without_none(role="assistant", content=[{"type": "text", "text": text}], model=model)
    message = generation.message
    named = message.response_metadata.get("model_name") or message.response_metadata.get("model")
    return _without_none(
        role=role_of(message),
        content=parts_of(message),
        model=named or model,
        usage=usage_of(message),
        message_id=message.id,
        finish_reason=message.response_metadata.get("finish_reason") or message.response_metadata.get("stop_reason"),
    )


def usage_of(message: BaseMessage) -> dict[str, int] | None:
    """Token counts in a flat dict: `input_tokens`, `output_tokens`, `total_tokens`, and such as `cache_read_tokens`."""
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    if not usage:
        return None
    flat = {name: number for name, number in usage.items() if isinstance(number, int)}
    for details in (usage.get("input_token_details"), usage.get("output_token_details")):
        flat.update({f"{name}_tokens": number for name, number in (details or {}).items() if isinstance(number, int)})
    return flat


def said_by_user(inputs: object) -> list[BaseMessage]:
    """A person's messages in the input of a graph: the human messages after the model's last one.

    A program without checkpoints sends the whole conversation each time; only its end is new.
    """
    given = inputs.get("messages") if isinstance(inputs, Mapping) else None
    if given is None:
        return []
    try:
        messages = convert_to_messages(given if isinstance(given, list) else [given])
    except Exception:
        # A channel of that name with other content.
        return []
    last = max((position for position, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
    return [message for message in messages[last + 1 :] if isinstance(message, HumanMessage)]


def text_of(token: str | Sequence[str | Mapping[str, object]]) -> str:
    """The text of a token, which some models return as parts."""
    if isinstance(token, str):
        return token
    texts = (part if isinstance(part, str) else part.get("text") for part in token)
    return "".join(text for text in texts if isinstance(text, str))


def result_of(output: object) -> object:
    """A tool's result, without the message around it."""
    if isinstance(output, ToolMessage):
        return output.content
    if isinstance(output, Command):
        update = output.update.get("messages") if isinstance(output.update, Mapping) else None
        contents = [message.content for message in update or () if isinstance(message, ToolMessage)]
        return contents[0] if len(contents) == 1 else shown(output.update)
    return shown(output)


def shown(value: object, levels: int = _LEVELS) -> object:
    """A state for people to read, with messages as `{"role", "content"}`.

    Never raises: a value that cannot be inspected is returned unchanged, and shown as it prints.
    """
    try:
        return _shown(value, levels)
    except Exception:
        return value


def _shown(value: object, levels: int) -> object:
    if isinstance(value, BaseMessage):
        return {"role": role_of(value), "content": parts_of(value)}
    if isinstance(value, Command):
        members = {name: getattr(value, name) for name in ("resume", "update", "goto", "graph")}
        return {name: shown(member, levels - 1) for name, member in members.items() if member}
    if not levels:
        return value
    if isinstance(value, Mapping):
        return {name: shown(member, levels - 1) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item, levels - 1) for item in value]
    # A class has its instances' methods, but they cannot be called on it.
    if not isinstance(value, type) and callable(dump := getattr(value, "model_dump", None)):
        return dump()
    return value


def asked(interrupt: Interrupt) -> dict[str, object]:
    """The payload of `interrupt.requested`, without the checkpoint that waits.

    `kind` is the value's own, `approval` for the requests of LangChain's human-in-the-loop middleware, else `question`.
    `prompt` is the first text among the value, its members `prompt`, `question`, `message`, `description`, `query`, and
    the descriptions of such requests, or else its JSON.
    """
    value = interrupt.value
    members = value if isinstance(value, Mapping) else {}
    kind = members.get("kind")
    if not isinstance(kind, str):
        kind = "approval" if "action_requests" in members else "question"
    texts = [value, *(members.get(name) for name in _PROMPT_MEMBERS), *_descriptions(members)]
    prompt = next((text for text in texts if isinstance(text, str) and text), None)
    if prompt is None:
        prompt = json.dumps(plain(shown(value)), ensure_ascii=False)
    payload = {"kind": kind, "prompt": prompt[:PROMPT_CHARACTERS], "value": shown(value)}
    return _without_none(**payload, response_schema=interrupt.response_schema)


def _descriptions(members: Mapping[str, object]) -> list[object]:
    requests = members.get("action_requests")
    if not isinstance(requests, (list, tuple)):
        return []
    return [request.get("description") for request in requests if isinstance(request, Mapping)]


def _without_none(**members: object) -> dict[str, object]:
    return {name: member for name, member in members.items() if member is not None}
