"""A LangGraph agent whose runs a React page follows while they happen.

It needs no key: its model is a fake one that writes a character every few milliseconds.
"""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

import httpx2
import uvicorn
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from runreel import Client
from runreel.langgraph import RunreelCallback, RunreelSaver

URL = os.environ.get("RUNREEL_URL", "http://127.0.0.1:7717")
TOKEN = os.environ.get("RUNREEL_TOKEN")
PAGE = Path(__file__).parent / "page/dist"

client = Client(URL, token=TOKEN)
planner = FakeListChatModel(responses=["There is a night train at 20:05, with a bed for 79 euros."], sleep=0.01)
clerk = FakeListChatModel(responses=["Done. Your bed is number 21, and breakfast is at seven."], sleep=0.01)


def plan(state: MessagesState) -> dict[str, object]:
    return {"messages": [planner.invoke(state["messages"])]}


def ask(state: MessagesState) -> dict[str, object]:
    agreed = interrupt({"kind": "approval", "prompt": "Book the night train for 79 euros?"})
    return {"messages": [("user", "Yes, book it." if agreed else "No.")]}


def book(state: MessagesState) -> dict[str, object]:
    return {"messages": [clerk.invoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_sequence([plan, ask, book])
    .add_edge(START, "plan")
    .add_edge("book", END)
    .compile(checkpointer=RunreelSaver(URL, token=TOKEN), name="travel")
)


def travel(run_id: str, thread_id: str, question: str) -> None:
    """One run: to the interrupt, whose answer it awaits as long as that takes, and on to the end."""
    with RunreelCallback(client=client, run_id=run_id) as callback:
        config: RunnableConfig = {"callbacks": [callback], "configurable": {"thread_id": thread_id}}
        run_to_end({"messages": [("user", question)]}, config)
        run_to_end(callback.wait_for_answers(run_id).command(), config)


def run_to_end(given: object, config: RunnableConfig) -> None:
    """Streams, so that the models write token by token; the callback sends the tokens on."""
    for _ in graph.stream(given, config, stream_mode="messages"):
        pass


async def start(request: Request) -> JSONResponse:
    """Starts a run; the page gets its id and, where the server wants one, a token that reads this run alone."""
    question = (await request.json())["question"]
    trip = str(uuid.uuid4())
    # The graph continues the run of its own name on the thread.
    run = await run_in_threadpool(client.put_run, trip, thread_id=trip, title="travel", agent="travel")
    threading.Thread(target=travel, args=(run["run_id"], trip, question), daemon=True).start()
    return JSONResponse({"run_id": run["run_id"], "token": await read_token(run["run_id"]), "url": URL})


async def read_token(run_id: str) -> str | None:
    if TOKEN is None:
        return None
    async with httpx2.AsyncClient(base_url=URL, headers={"authorization": f"Bearer {TOKEN}"}) as http:
        response = await http.post(f"/api/runs/{run_id}/tokens", json={"ttl_s": 3600})
        return str(response.raise_for_status().json()["token"])


async def answer(request: Request) -> JSONResponse:
    """Answers the run's question. The page may only read; who may approve is this program's to say."""
    body = await request.json()
    decision = "approve" if body["agreed"] else "reject"
    await run_in_threadpool(client.resume, body["run_id"], body["interrupt_id"], decision)
    return JSONResponse({})


app = Starlette(
    routes=[
        Route("/runs", start, methods=["POST"]),
        Route("/answers", answer, methods=["POST"]),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="warning")
