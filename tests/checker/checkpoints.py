"""The newest recovery checkpoint of a job: is it what its manifest says?

``checkpoint/at-<offset>/manifest.json`` names each file with its SHA-256 and its bytes, and the attempt that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"at-\d{10}")


@dataclass
class Shelf:
    """Looks at each checkpoint once: what has the same time and size is taken to be the same."""

    _seen: dict[Path, tuple[tuple[int, ...], str | None, int]] = field(default_factory=dict)

    def newest(self, job: Path) -> tuple[Path, str | None, int] | None:
        """The newest checkpoint of a job's folder: where it is, what is wrong with it, and its fence."""
        for _ in range(3):  # between the look at the folder and the look at its files it may have been replaced
            path = _newest(job / "checkpoint")
            if path is None:
                return None
            wrong, fence = self._look(path)
            if wrong is None:
                break
            time.sleep(0.02)
        return path, wrong, fence

    def _look(self, path: Path) -> tuple[str | None, int]:
        try:
            mark = tuple(number for file in sorted(path.iterdir()) for number in _mark(file))
            if path not in self._seen or self._seen[path][0] != mark:
                self._seen[path] = (mark, *_verify(path))
        except OSError as error:
            return f"cannot be read: {error.strerror}: {Path(error.filename or path).name}", 0
        return self._seen[path][1:]


def _newest(folder: Path) -> Path | None:
    try:
        return max((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), default=None)
    except (FileNotFoundError, NotADirectoryError):  # not yet, or no more: its job was deleted
        return None


def _mark(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _verify(path: Path) -> tuple[str | None, int]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        fence = int(manifest["fence"])
        for name, facts in manifest["files"].items():
            data = (path / name).read_bytes()
            if len(data) != facts["bytes"]:
                return f"{name} has {len(data)} bytes, its manifest says {facts['bytes']}", fence
            if hashlib.sha256(data).hexdigest() != facts["sha256"]:
                return f"{name} has another SHA-256 than its manifest says", fence
        if not manifest["files"]:
            return "its manifest names no file", fence
    except (ValueError, KeyError, TypeError) as error:
        return f"its manifest cannot be read: {type(error).__name__} {error}", 0
    return None, fence
