"""A Pydantic AI agent that serves AG-UI and knows nothing of Runreel, and the page that follows its runs.

It needs no key: its model is a fake one that writes a word every now and then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

ANSWER = "The night train leaves at 20:05, has a bed for 79 euros, and arrives in Rome when the bars open."
WORD_S = 0.2


async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Looks for trains, then says what it found."""
    parts = [part for message in messages for part in message.parts]
    if not any(isinstance(part, ToolReturnPart) for part in parts):
        yield {0: DeltaToolCall(name="trains", json_args='{"to": "Rome"}', tool_call_id="trains-1")}
        return
    for word in ANSWER.split(" "):
        yield word if word == "The" else f" {word}"
        await asyncio.sleep(WORD_S)


agent = Agent(FunctionModel(stream_function=write))


@agent.tool_plain
def trains(to: str) -> list[str]:
    """The trains to a city."""
    return [f"20:05 to {to}, 79 euros"]


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


async def page(_: Request) -> Response:
    return FileResponse(Path(__file__).parent / "page.html")


app = Starlette(routes=[Route("/agent", run, methods=["POST"]), Route("/", page)])

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="warning")
