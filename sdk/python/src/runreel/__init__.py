"""Runreel: a durable, gap-free log of what AI agents do, followed live.

```python
import runreel

with runreel.Client() as client, client.run("hello") as run:
    run.log.info("hello")
```
"""

from ._approval import Approval, AsyncApproval
from ._async_client import AsyncClient, AsyncThreads
from ._client import Client, Threads
from ._events import Decision, Event, MessageRecord, Removed, RunRecord, RunStatus, ThreadRecord, Timeline
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

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Approval",
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
