"""The methods of a checkpointer: `_async` for event loops and, generated from it, `_sync` for threads."""
