"""Everything that waits for the network: `_async` for event loops and, generated from it, `_sync` for threads."""
