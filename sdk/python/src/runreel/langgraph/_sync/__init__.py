# Generated from src/runreel/langgraph/_async/__init__.py by `./just unasync`: change that file instead of this one.
"""The methods of a checkpointer: `_async` for event loops and, generated from it, `_sync` for threads."""
