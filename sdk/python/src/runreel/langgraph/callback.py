"""A LangGraph (or LangChain) run in Runreel, recorded live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType

from langgraph.errors import GraphDrained

from .._client import Client
from .._earlier import ENDS, found, unfinished
from .._events import Decision
from .._sender import OnError
from .._settings import Verify
from .._thread_ids import is_thread_id
from ..errors import RunreelError
from .answers import Answers, wait_for_answers
from .messages import shown
from .observer import Observer
from .recording import Recording, goes_on, log


class RunreelCallback(Observer):
    """Records each outermost call of a graph as a run: `graph.invoke(input, {"callbacks": [callback], …})`.

    Nodes and named subgraphs become steps, tools and retrievers become tools, models become messages with live tokens;
    a person's input is a message, too. The run belongs to the thread of the config, and the checkpoints a
    `RunreelSaver` stores during it belong to the run.

    An interrupt is not an error: the run is `interrupted`, with an `interrupt.requested` for each question. The next
    call of the graph on the thread with `Command(resume=…)` or None continues that run, also in another process; with
    `run_id` the first call continues that run. An answer given through Runreel's API is read from the log; one that the
    program gives itself is added to it. LangGraph runs an interrupted node again from its start. Its span, and that of
    a tool call in progress, continues as the same one; a model that is called again is another message.

    One callback can serve many graphs and threads at a time. `agent`, `tags` and `metadata` are set on each run.
    Without a `client` it creates one from `url`, `token`, `on_error` and `verify` (see `Client`), which `close` closes.
    It never breaks the graph: errors are logged, or with `on_error="raise"` raised. Nor does it delay the graph for
    long: before a graph resumes, the server is asked once for the earlier state, and has 2 s for each answer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
        agent: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, object] | None = None,
        client: Client | None = None,
        on_error: OnError = "warn",
        verify: Verify = True,
    ) -> None:
        super().__init__()
        self.raise_error = on_error == "raise"
        self._warns = on_error == "warn"
        self.client = client or Client(url, token=token, on_error=on_error, verify=verify)
        self.run_id = run_id
        """The run that started last, or that is to be continued."""
        self._closes = client is None
        self._given = run_id
        self._thread_id = thread_id
        self._agent = agent
        self._tags = tuple(tags)
        self._metadata = metadata
        self._at_work: dict[str, str] = {}

    def run_of(self, thread_id: str) -> str | None:
        """The run that works on a thread now. `RunreelSaver` uses it to assign a checkpoint to its run."""
        return self._at_work.get(thread_id)

    def wait_for_answers(self, run_id: str | None = None, *, timeout: float | None = None) -> Answers:
        """Waits until the interrupts of this run, or of the one that started last, are answered.

        `graph.invoke(answers.command(), config)` resumes the graph. An answer that is already in the log is returned at
        once, also after a restart. Raises TimeoutError after `timeout` seconds, `RunEnded` when the run was cancelled
        meanwhile. From a coroutine: `await asyncio.to_thread(callback.wait_for_answers)`.
        """
        return wait_for_answers(self.client, self._named(run_id), timeout)

    def wait_for_answer(self, run_id: str | None = None, *, timeout: float | None = None) -> Decision:
        """`wait_for_answers` for a graph with one interrupt; ValueError when there are several."""
        (decision,) = self.wait_for_answers(run_id, timeout=timeout).values()
        return decision

    def close(self) -> None:
        """Sends what is queued and closes the client, unless you passed it."""
        if self._closes:
            self.client.close()

    def __enter__(self) -> RunreelCallback:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _begin(self, name: str, inputs: object, metadata: Mapping[str, object]) -> Recording:
        thread_id = self._thread_id or metadata.get("thread_id")
        thread_id = str(thread_id) if is_thread_id(thread_id) else None
        wanted, self._given = self._given, None
        record, recording = None, None
        try:
            if wanted is not None:
                record = found(self.client, wanted)
            elif thread_id and goes_on(inputs):
                record = unfinished(self.client, thread_id, name)
            if record is not None and record["status"] not in ENDS:
                recording = Recording.gone_on(self.client, record, inputs)
        except RunreelError as error:
            # If the earlier state cannot be read, the call is recorded as a new run.
            if self.raise_error:
                raise
            if self._warns:
                log.warning("%s", error)
        if recording is None:
            run = self.client.run(
                name,
                title=name,
                agent=self._agent,
                thread_id=thread_id,
                input=shown(inputs),
                metadata=self._metadata,
                tags=self._tags,
                # A run that has ended is not continued: the call is another run.
                run_id=None if record is not None and record["status"] in ENDS else wanted,
                attach=wanted is not None,
            )
            recording = Recording.begun(self.client, run, inputs)
        self.run_id = recording.run_id
        if thread_id:
            self._at_work[thread_id] = recording.run_id
        return recording

    def _end(self, recording: Recording, outputs: object, error: BaseException | None) -> None:
        for thread_id, run_id in list(self._at_work.items()):
            if run_id == recording.run_id:
                self._at_work.pop(thread_id, None)
        if isinstance(error, GraphDrained):
            recording.wait(str(error))
        elif error is not None:
            recording.fail(error)
        else:
            recording.end(outputs)

    def _named(self, run_id: str | None) -> str:
        named = run_id or self.run_id
        if named is None:
            raise ValueError("no run has started yet: specify the run")
        return named
