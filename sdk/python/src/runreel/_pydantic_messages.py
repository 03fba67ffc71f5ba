"""Converts Pydantic AI's prompts, answers and tool results to the payloads of Runreel's events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    ToolReturn,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import to_jsonable_python

_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def said_by_user(prompt: Any, history: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """The user's message in this run, as parts: the prompt, or else the user prompts at the end of the history."""
    given = [prompt] if prompt is not None else []
    if prompt is None and history and isinstance(history[-1], ModelRequest):
        given = [part.content for part in history[-1].parts if isinstance(part, UserPromptPart)]
    items = [item for content in given for item in ([content] if isinstance(content, str) else content)]
    return [part for part in map(_part_of, items) if part]


def _part_of(item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, BinaryContent):
        # The log has only its type and size; to store the bytes, upload an artifact.
        return {"type": "file", "media_type": item.media_type, "size": len(item.data)}
    kind = str(getattr(item, "kind", "unknown"))
    if isinstance(url := getattr(item, "url", None), str):
        return {"type": kind.removesuffix("-url"), "url": url}
    if isinstance(content := getattr(item, "content", None), str):
        return {"type": "text", "text": content}
    return None if kind == "cache-point" else {"type": kind, "value": jsonable(item)}


def completed(response: ModelResponse) -> dict[str, Any]:
    """The payload of `message.completed`, without reasoning, which has its own events."""
    payload = {
        "role": "assistant",
        "content": [item for part in response.parts if (item := _answer_part(part)) is not None],
        "model": response.model_name,
        "usage": _usage(response),
        "finish_reason": response.finish_reason,
    }
    return {name: value for name, value in payload.items() if value is not None}


def _answer_part(part: Any) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.content} if part.content else None
    if isinstance(part, (ToolCallPart, NativeToolCallPart)):
        return {"type": "tool_call", "id": part.tool_call_id, "name": part.tool_name, "args": args_of(part)}
    if isinstance(part, NativeToolReturnPart):
        result = jsonable(part.content)
        return {"type": "tool_result", "id": part.tool_call_id, "name": part.tool_name, "result": result}
    if isinstance(part, FilePart):
        return _part_of(part.content)
    return None


def _usage(response: ModelResponse) -> dict[str, int] | None:
    """Token counts in a flat dict: `input_tokens`, `output_tokens`, and the provider's other counts."""
    flat = {name: number for name, number in response.usage.details.items() if isinstance(number, int)}
    flat.update({name: number for name in _USAGE if (number := getattr(response.usage, name))})
    return flat or None


def args_of(call: ToolCallPart | NativeToolCallPart) -> Any:
    """A call's arguments as the model gave them: decoded where they are JSON, else their text."""
    try:
        return call.args_as_dict(raise_if_invalid=True)
    except Exception:
        return call.args


def result_of(result: Any) -> Any:
    """A tool's return value, without its additional content for the model and metadata for the program."""
    return jsonable(result.return_value if isinstance(result, ToolReturn) else result)


def jsonable(value: Any) -> Any:
    """A value of models, dataclasses and the like as Pydantic serialises it; unchanged where Pydantic cannot."""
    try:
        return to_jsonable_python(value, bytes_mode="base64", serialize_unknown=True)
    except Exception:
        return value


def can_stream(model: Any) -> bool:
    """Whether the model can be asked to stream; with some that cannot, the run would fail."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FallbackModel):
        return all(can_stream(candidate) for candidate in model.models)
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return isinstance(model, Model) and type(model).request_stream is not Model.request_stream
