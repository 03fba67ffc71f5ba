"""The requests of the wire contract as data, for both kinds of client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from . import _ids
from ._http import Call, Parameter, quote
from ._uploads import Upload


class Unset:
    """The type of an omitted argument, where None has a meaning."""

    def __repr__(self) -> str:
        return "…"


UNSET: Final = Unset()


def _given(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not UNSET}


def words(several: str | Iterable[str] | None) -> str | None:
    """A parameter of several words, joined by commas."""
    return several if several is None or isinstance(several, str) else ",".join(several)


def run(run_id: str) -> Call:
    return Call("GET", f"/api/runs/{quote(run_id)}")


def by_external_id(external_id: str) -> Call:
    return Call("GET", f"/api/runs/by-external-id/{quote(external_id)}")


def put_run(external_id: str, members: Mapping[str, object]) -> Call:
    body = {name: value for name, value in members.items() if value is not None}
    return Call("PUT", f"/api/runs/by-external-id/{quote(external_id)}", json=body, idempotent=True)


def delete_run(run_id: str) -> Call:
    return Call("DELETE", f"/api/runs/{quote(run_id)}")


def runs(**params: Parameter) -> Call:
    return Call("GET", "/api/runs", params=params)


def cancel(run_id: str, reason: str | None) -> Call:
    body = {} if reason is None else {"reason": reason}
    return Call("POST", f"/api/runs/{quote(run_id)}/cancel", json=body, idempotent=True)


def resume(run_id: str, interrupt_id: str, decision: str, value: object) -> Call:
    body = {"interrupt_id": interrupt_id, "decision": decision, **_given(value=value)}
    # The first answer counts and the same answer again succeeds, so a repeat is safe.
    return Call("POST", f"/api/runs/{quote(run_id)}/resume", json=body, idempotent=True)


def heartbeat(run_id: str) -> Call:
    return Call("POST", f"/api/runs/{quote(run_id)}/heartbeat", idempotent=True)


def upload(run_id: str, upload: Upload, content: bytes | Iterable[bytes] | AsyncIterable[bytes]) -> Call:
    params = {"name": upload.name, "parent_span_id": upload.parent_span_id, "event_id": _ids.event_id()}
    # With this event_id a repeat is the same upload.
    return Call(
        "POST",
        f"/api/runs/{quote(run_id)}/artifacts",
        params=params,
        content=content,
        content_type=upload.media_type,
        idempotent=True,
    )


def events(run_id: str, after: int, types: str | Iterable[str] | None) -> Call:
    return Call(
        "GET", f"/api/runs/{quote(run_id)}/events", params={"after": after, "types": words(types), "limit": 1_000}
    )


def timeline(run_id: str) -> Call:
    return Call("GET", f"/api/runs/{quote(run_id)}/timeline")


def run_stream(run_id: str) -> str:
    return f"/api/stream/runs/{quote(run_id)}"


def thread_stream(thread_id: str) -> str:
    return f"/api/stream/threads/{quote(thread_id)}"


ALL_STREAM = "/api/stream/runs"


def thread(thread_id: str) -> Call:
    return Call("GET", f"/api/threads/{quote(thread_id)}")


def put_thread(thread_id: str, metadata: Mapping[str, object] | Unset, ttl_s: int | Unset | None) -> Call:
    return Call("PUT", f"/api/threads/{quote(thread_id)}", json=_given(metadata=metadata, ttl_s=ttl_s))


def delete_thread(thread_id: str) -> Call:
    return Call("DELETE", f"/api/threads/{quote(thread_id)}")


def threads(q: str | None) -> Call:
    return Call("GET", "/api/threads", params={"q": q})


def copy_thread(thread_id: str, to: str) -> Call:
    return Call("POST", f"/api/threads/{quote(thread_id)}/copy", json={"to": to}, idempotent=True)


def thread_messages(thread_id: str) -> Call:
    return Call("GET", f"/api/threads/{quote(thread_id)}/messages")


def thread_runs(thread_id: str, status: str | Iterable[str] | None) -> Call:
    return Call("GET", f"/api/threads/{quote(thread_id)}/runs", params={"status": words(status)})


def prune_threads(thread_ids: Iterable[str], strategy: str) -> Call:
    body = {"thread_ids": list(thread_ids), "strategy": strategy}
    return Call("POST", "/api/threads/prune", json=body, idempotent=True)


def next_page(call: Call, answer: object) -> Call | None:
    """The request for the next page; None after the last one."""
    page: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    if page.get("has_more"):
        step = {"after": page["last_id"]}
    elif page.get("next_cursor"):
        step = {"cursor": page["next_cursor"]}
    else:
        return None
    return replace(call, params={**(call.params or {}), **step})


def create_body(members: Mapping[str, bytes]) -> bytes:
    """A JSON object from members that are already encoded."""
    return b"{" + b",".join(json.dumps(name).encode() + b":" + value for name, value in members.items()) + b"}"
