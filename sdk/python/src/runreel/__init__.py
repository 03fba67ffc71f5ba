"""Runreel: a durable, gap-free log of what AI agents do, followed live.

```python
import runreel

with runreel.Client() as client, client.run("hello") as run:
    run.log.info("hello")
```
"""

from typing import TYPE_CHECKING, Any

from ._approval import Approval, AsyncApproval
from ._async_client import AsyncClient, AsyncThreads
from ._client import Client, Threads
from ._events import (
    ArtifactRecord,
    Decision,
    Event,
    MessageRecord,
    Removed,
    RunRecord,
    RunStatus,
    ThreadRecord,
    Timeline,
)
from ._run import AsyncRun, Run
from ._spans import Log, Message, Scope, Step, Tool
from .errors import (
    ApiError,
    ArtifactTooLarge,
    ConnectionFailed,
    EventsDropped,
    RunEnded,
    RunreelError,
    StreamGap,
)

if TYPE_CHECKING:
    from .runner import Runner

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # It needs websockets (`pip install "runreel[runner]"`), which nothing else here does.
    if name == "Runner":
        from .runner import Runner  # noqa: PLC0415

        return Runner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ApiError",
    "Approval",
    "ArtifactRecord",
    "ArtifactTooLarge",
    "AsyncApproval",
    "AsyncClient",
    "AsyncRun",
    "AsyncThreads",
    "Client",
    "ConnectionFailed",
    "Decision",
    "Event",
    "EventsDropped",
    "Log",
    "Message",
    "MessageRecord",
    "Removed",
    "Run",
    "RunEnded",
    "RunRecord",
    "RunStatus",
    "Runner",
    "RunreelError",
    "Scope",
    "Step",
    "StreamGap",
    "ThreadRecord",
    "Threads",
    "Timeline",
    "Tool",
    "__version__",
]
