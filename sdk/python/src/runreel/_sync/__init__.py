# Generated from src/runreel/_async/__init__.py by `./just unasync`: change that file instead of this one.
"""Everything that waits for the network: `_async` for event loops and, generated from it, `_sync` for threads."""
