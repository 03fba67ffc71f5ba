"""LangGraph with Runreel: checkpoints stored by the server, runs recorded live.

`pip install "runreel[langgraph]"`

```python
from runreel.langgraph import RunreelCallback, RunreelSaver

graph = builder.compile(checkpointer=RunreelSaver())
callback = RunreelCallback()
config = {"callbacks": [callback], "configurable": {"thread_id": "thread-1"}}
graph.invoke({"messages": [("user", "hello")]}, config)
```
"""

try:
    from .answers import Answers
    from .callback import RunreelCallback
    from .saver import RunreelSaver
except ImportError as error:
    raise ImportError(f"{error}; LangGraph comes with: pip install 'runreel[langgraph]'") from error

__all__ = ["Answers", "RunreelCallback", "RunreelSaver"]
