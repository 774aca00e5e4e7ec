"""The API as a process of its own, as ``python -m edt_api`` starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = [str(Path(__file__).parents[2] / folder) for folder in ("api", "scheduler", "runners", "migrations")]


def environ(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(SOURCES), "EDT_HOME": str(home), "EDT_PORT": "0", **more}


@contextmanager
def serving(home: Path, before: str = "", **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The API's process and its URL. ``before``: a statement that comes first."""
    start = ["-c", f"{before}\nfrom edt_api.__main__ import main\nmain()"] if before else ["-m", "edt_api"]
    process = subprocess.Popen([sys.executable, *start], env=environ(home, **more), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"https?://\S+", process.stderr.readline())
        assert found is not None
        yield process, found.group()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
