"""Generates every `_sync` folder of the package from the `_async` folder beside it, so that the code is written once.

`python sdk/python/tools/unasync.py` writes the files; `generated()` returns their contents. Names lose `Async` or
`async_`, calls lose `await`, in code and in docstrings and comments. Code that differs in more than that between
threads and event loops is outside those folders, under a pair of such names (`_waiting.py`, `_connections.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
HEADER = "# Generated from {source} by `./just unasync`: change that file instead of this one.\n"

# The names that other people chose: Python's, httpx2's, and the methods of LangGraph's checkpointers.
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclosing": "closing",
    "asynccontextmanager": "contextmanager",
    "aclose": "close",
    "aiter_raw": "iter_raw",
    "aread": "read",
    "acopy_thread": "copy_thread",
    "adelete_for_runs": "delete_for_runs",
    "adelete_thread": "delete_thread",
    "aget_tuple": "get_tuple",
    "alist": "list",
    "aprune": "prune",
    "aput": "put",
    "aput_writes": "put_writes",
}
RULES = (
    (r"\b(" + "|".join(NAMES) + r")\b", lambda found: NAMES[found[1]]),
    # A generator has a third type, of what it returns.
    (r"\bAsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(_?)async_(?=[a-z])", r"\1"),
    (r"\basync (?=def\b|for\b|with\b)", ""),
    (r"\bawait (?=\w)", ""),
)
RUFF = [sys.executable, "-m", "ruff"]


def for_threads(text: str) -> str:
    """Converts code for event loops into code for threads, not yet formatted."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def generated() -> dict[Path, str]:
    """The contents of every generated file, by its path."""
    made = {}
    for source in sorted(PACKAGE.glob("src/**/_async/*.py")):
        header = HEADER.format(source=source.relative_to(PACKAGE).as_posix())
        target = source.parent.parent / "_sync" / source.name
        made[target] = _formatted(header + for_threads(source.read_text()), target)
    return made


def stale() -> list[Path]:
    """The generated files that are out of date or missing, and files that would not be generated."""
    made = generated()
    there = set(PACKAGE.glob("src/**/_sync/*.py"))
    return sorted(path for path in there | made.keys() if path not in there or path.read_text() != made.get(path))


def _formatted(text: str, path: Path) -> str:
    # The names are shorter: imports sort differently, lines join. Loops that need none become `yield from` and `any`.
    fixed = ["check", "--select", "I,UP028,SIM110", "--fix", "--unsafe-fixes", "--quiet"]
    for words in (fixed, ["format", "--quiet"]):
        command = [*RUFF, *words, "--config", str(PACKAGE / "pyproject.toml"), "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, check=True, input=text, capture_output=True, text=True).stdout
    return text


def main() -> None:
    made = generated()
    for path in stale():
        if path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
        else:
            path.unlink()


if __name__ == "__main__":
    main()
