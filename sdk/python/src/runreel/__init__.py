"""Runreel: a durable, gap-free log of what AI agents do, followed live.

```python
import runreel

with runreel.Client() as client, client.run("hello") as run:
    run.log.info("hello")
```
"""

from typing import TYPE_CHECKING

from ._async.approval import AsyncApproval
from ._async.run import AsyncRun
from ._async.threads import AsyncThreads
from ._client import AsyncClient, Client
from ._events import (
    ArtifactRecord,
    Decision,
    Event,
    MessageRecord,
    Removed,
    RunFields,
    RunRecord,
    RunStatus,
    ThreadRecord,
    Timeline,
)
from ._json import JsonValue
from ._spans import Log, Message, Scope, Step, Tool
from ._sync.approval import Approval
from ._sync.run import Run
from ._sync.threads import Threads
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
else:

    def __getattr__(name):
        # Imported on first use: only the runner needs websockets (`pip install "runreel[runner]"`).
        if name == "Runner":
            from .runner import Runner  # noqa: PLC0415

            return Runner
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"


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
    "JsonValue",
    "Log",
    "Message",
    "MessageRecord",
    "Removed",
    "Run",
    "RunEnded",
    "RunFields",
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
