"""Runs of Pydantic AI's agents in Runreel, recorded live.

`pip install "runreel[pydantic-ai]"`

```python
from pydantic_ai import Agent
from runreel.pydantic_ai import RunreelCapability

agent = Agent("openai:gpt-5", capabilities=[RunreelCapability()])
agent.run_sync("hello")
```
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

try:
    from pydantic_ai import AgentRunResult, DeferredToolResults, RunContext, ToolApproved, ToolDenied
    from pydantic_ai.capabilities import AbstractCapability
except ImportError as error:
    raise ImportError(f"{error}; Pydantic AI comes with: pip install 'runreel[pydantic-ai]'") from error

from . import _pydantic_recording
from ._asked import Asked, wait_until_answered
from ._client import Client
from ._events import Decision
from ._sender import OnError
from ._settings import Verify
from .errors import RunEnded

log = logging.getLogger("runreel")

# How many of the latest runs can be found by the id of their agent's run.
REMEMBERED = 10_000


class RunreelCapability(AbstractCapability[object]):
    """Records each run of an agent: `Agent(…, capabilities=[RunreelCapability()])`.

    The agent's name is the title, its conversation the thread, and Pydantic AI's `run_id` the run's id. The user's
    message, the model's answers (live, with usage and model) and its reasoning, and calls of tools are in the log; the
    run ends as the agent's run does. An agent that a tool calls is a child run, if both have this capability.
    `agent.run(…, capabilities=[…])` replaces the agent's own for one run, so that each user's runs can be recorded with
    the user's own token.

    Calls that wait for an approval or for a result from outside are interrupts, and the run stays open: a call of the
    agent with `deferred_tool_results` continues it. `wait_for_results` waits for the answers of people.

    To show tokens, models that can stream are asked to; `tokens=False` leaves their calls unchanged. `agent`,
    `tags` and `metadata` are set on each run. Without a `client` it creates one from `url`, `token`, `on_error` and
    `verify` (see `Client`), which `close` closes. It never breaks a run: errors are logged, or with `on_error="raise"`
    raised. Nor does it wait for the network, with one exception: before a run continues, the server is asked for the
    earlier state, and has 2 s for each answer. Realtime sessions are not recorded.
    """

    # The same for all instances: one passed to a call of an agent replaces the agent's own.
    id = "runreel"

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        agent: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, object] | None = None,
        tokens: bool = True,
        client: Client | None = None,
        on_error: OnError = "warn",
        verify: Verify = True,
    ) -> None:
        self.client = client or Client(url, token=token, on_error=on_error, verify=verify)
        self.agent = agent
        self.tags = tuple(tags)
        self.metadata = metadata
        self.tokens = tokens
        self._on_error = on_error
        self._closes = client is None
        self._runs: dict[str, str] = {}

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> AbstractCapability[object]:
        """If an agent has several, the last one records."""
        return capabilities[-1]

    async def for_run(self, ctx: RunContext[object]) -> AbstractCapability[object]:
        """The capability that records one run."""
        return self if ctx.realtime else _pydantic_recording.Recording(self, ctx)

    def run_id(self, result: AgentRunResult[object]) -> str:
        """The run in Runreel that recorded this result: `result.run_id`, unless that continued an earlier one."""
        return self._runs.get(result.run_id, result.run_id)

    def wait_for_results(
        self, run: AgentRunResult[object] | str, *, timeout: float | None = None
    ) -> DeferredToolResults:
        """Waits until people have answered what the run stopped for; `run` is its result, or its id in Runreel.

        `agent.run(message_history=result.all_messages(), deferred_tool_results=…)` continues it. A call is approved
        with `approve` (a value of `{…}` replaces its arguments) and denied otherwise, with the value as the message if
        that is text; a result from outside is the value. What was answered before is returned at once. Raises
        TimeoutError after `timeout` seconds, `RunEnded` when the run was cancelled meanwhile. From a coroutine:
        `await asyncio.to_thread(capability.wait_for_results, result)`.
        """
        self.client.flush()
        return _results(wait_until_answered(self.client, run if isinstance(run, str) else self.run_id(run), timeout))

    def close(self) -> None:
        """Sends what is queued and closes the client, unless you passed it."""
        if self._closes:
            self.client.close()

    def __enter__(self) -> RunreelCapability:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _remember(self, agents_run: str | None, run_id: str) -> None:
        if agents_run is not None and agents_run != run_id:
            self._runs[agents_run] = run_id
            if len(self._runs) > REMEMBERED:
                del self._runs[next(iter(self._runs))]

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Errors in the block do not fail the recorded run, unless `on_error` is "raise"."""
        try:
            yield
        except Exception as error:
            if self._on_error == "raise":
                raise
            if self._on_error == "warn":
                log.warning("not recorded: %s: %s", type(error).__name__, error)


def _results(asked: Asked) -> DeferredToolResults:
    results = DeferredToolResults()
    for interrupt_id in asked.waiting:
        request, decision = asked.requests.get(interrupt_id, {}), asked.decisions[interrupt_id]
        if decision.decision == "cancelled":
            raise RunEnded("the run was cancelled before its interrupts were answered")
        call_id = str(request.get("tool_call_id"))
        if request.get("kind") == _pydantic_recording.APPROVAL:
            results.approvals[call_id] = _approval(decision)
        else:
            results.calls[call_id] = decision.value if decision.value is not None else decision.decision
    return results


def _approval(decision: Decision) -> ToolApproved | ToolDenied:
    if decision.approved:
        return ToolApproved(override_args=decision.value if isinstance(decision.value, dict) else None)
    if isinstance(decision.value, str):
        return ToolDenied(decision.value)
    return (
        ToolDenied()
        if decision.decision == "reject"
        else ToolDenied(f"The tool call was not approved: {decision.decision}.")
    )
