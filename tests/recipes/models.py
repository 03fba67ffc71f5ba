"""A model behind the HTTP APIs of OpenAI and Gemini: it looks the weather up, if it can, and says that it is sunny.

What it says depends on what it is asked, so recipes run as they are printed, and only the address is another.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("It ", "is ", "sunny ", "in ", "Rome.")


def chat_chunks(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The deltas of OpenAI's Chat Completions API that answer a request."""
    if _calls_tool(asked.get("tools"), asked["messages"][-1].get("role") == "tool"):
        function = {"name": _tool_of(asked["tools"]), "arguments": '{"city":"Rome"}'}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return [{"role": "assistant", "content": word} for word in WORDS]


def gemini_parts(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of Gemini's API that answer a request."""
    tools = [declared for tool in asked.get("tools", []) for declared in tool.get("functionDeclarations", [])]
    if _calls_tool(tools, "functionResponse" in asked["contents"][-1]["parts"][-1]):
        return [{"functionCall": {"name": tools[0]["name"], "args": {"city": "Rome"}}}]
    return [{"text": word} for word in WORDS]


def _calls_tool(tools: Any, is_answered: bool) -> bool:
    return bool(tools) and not is_answered


def _tool_of(tools: list[dict[str, Any]]) -> str:
    return str(tools[0]["function"]["name"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/chat/completions"):
            self._chat(asked)
        elif ":streamGenerateContent" in self.path:
            *rest, last = gemini_parts(asked)
            self._stream([*({"candidates": [{"content": _model([part])}]} for part in rest), _gemini([last])])
        elif ":generateContent" in self.path:
            self._json(_gemini(gemini_parts(asked)))
        else:
            self.send_error(404, self.path)

    def _chat(self, asked: dict[str, Any]) -> None:
        deltas = chat_chunks(asked)
        reason = "tool_calls" if "tool_calls" in deltas[0] else "stop"
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        head = {"id": "c1", "created": 1, "model": asked["model"]}
        if asked.get("stream"):
            chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
            chunks.append({"index": 0, "delta": {}, "finish_reason": reason})
            frames = [{**head, "object": "chat.completion.chunk", "choices": [chunk]} for chunk in chunks]
            self._stream(
                [*frames, {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}], "[DONE]"
            )
            return
        message = {**deltas[0], "content": None if reason == "tool_calls" else "".join(WORDS)}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self._json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _json(self, body: Any) -> None:
        self._send("application/json", json.dumps(body))

    def _stream(self, frames: list[dict[str, Any]], last: str = "") -> None:
        lines = [*map(json.dumps, frames), *filter(None, [last])]
        self._send("text/event-stream", "".join(f"data: {line}\n\n" for line in lines))

    def _send(self, media_type: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _gemini(parts: list[dict[str, Any]]) -> dict[str, Any]:
    candidate = {"content": _model(parts), "finishReason": "STOP"}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


def _model(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "model", "parts": parts}


@contextmanager
def serving() -> Iterator[str]:
    """Its address."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    listener.server_close()
    thread.join()


def environment(address: str) -> dict[str, str]:
    """The variables by which OpenAI's and Google's packages find the model, and frameworks talk to nobody else."""
    return {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "OTEL_SDK_DISABLED": "true",
        "AGNO_TELEMETRY": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": address,
        "GOOGLE_API_KEY": "none",
    }
