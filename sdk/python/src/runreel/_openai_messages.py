"""Converts messages in the formats of OpenAI's two APIs to parts of Runreel's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agents.tracing.span_data import GenerationSpanData, ResponseSpanData


def answered(data: GenerationSpanData | ResponseSpanData) -> dict[str, Any]:
    """The payload of `message.completed` for what a model has answered."""
    source = data if isinstance(data, GenerationSpanData) else data.response
    payload = {
        "role": "assistant",
        "content": parts_of(member(source, "output")),
        "model": member(source, "model"),
        "usage": _usage(data.usage or member(source, "usage")),
    }
    return {name: value for name, value in payload.items() if value is not None}


def parts_of(items: Any) -> list[dict[str, Any]]:
    """Items of the Responses API, or messages of the Chat Completions API, as parts of a message.

    Never raises, because programs can trace anything. An item in neither format has no parts.
    """
    parts: list[dict[str, Any]] = []
    for item in items_of(items):
        kind = member(item, "type")
        if kind == "function_call":
            parts.append(_tool_call(member(item, "call_id"), item))
        elif kind == "reasoning":
            texts = _texts(member(item, "summary"))
            parts.append({"type": "reasoning", "reasoning": "\n".join(texts)})
        else:
            texts = _texts(item if isinstance(item, str) else member(item, "content"))
            parts.extend({"type": "text", "text": text} for text in texts)
        for call in items_of(member(item, "tool_calls")):
            parts.append(_tool_call(member(call, "id"), member(call, "function")))
    return parts


def items_of(value: Any) -> list[Any]:
    """A list or tuple as a list, None as an empty list, anything else as a list of one item."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _texts(content: Any) -> list[str]:
    """The texts of a content that is a string or a list of pieces."""
    pieces = (
        piece if isinstance(piece, str) else member(piece, "text") or member(piece, "refusal")
        for piece in items_of(content)
    )
    return [text for text in pieces if isinstance(text, str) and text]


def _tool_call(call_id: Any, called: Any) -> dict[str, Any]:
    args = decoded(member(called, "arguments"))
    return {"type": "tool_call", "id": call_id, "name": member(called, "name"), "args": args}


def _usage(usage: Any) -> dict[str, int] | None:
    """Token counts in a flat dict: `input_tokens`, `output_tokens`, and details such as `cached_tokens`."""
    flat: dict[str, int] = {}
    members = usage if isinstance(usage, Mapping) else getattr(usage, "__dict__", {})
    for name, value in members.items():
        if isinstance(value, int):
            flat[str(name)] = value
        elif value is not None and str(name).endswith("_details"):
            flat.update(_usage(value) or {})
    return flat or None


def decoded(arguments: Any) -> Any:
    """Arguments decoded from their JSON text; unchanged if they are not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def member(item: Any, name: str) -> Any:
    """The member or attribute of this name; None when it is missing or cannot be read."""
    try:
        return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
    except Exception:
        return None
