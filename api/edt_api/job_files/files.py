"""Reading what a job wrote, without being led elsewhere by it. Reads below one job's folder only.

User code may put links, pipes and devices into its folders. Nothing here follows a link at any component, and
only regular files are opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edt_api import to_wire
from edt_api.errors import ResultsRemoved
from edt_scheduler.views import JobView

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Found:
    """A regular file as it was seen."""

    path: tuple[str, ...]
    """Components below the root."""
    size: int
    executable: bool
    changed_at: float


def must_be_kept(job: JobView) -> None:
    """Raises ResultsRemoved where the job's files are gone, or are just going, because of their age."""
    removed = to_wire.results_removed(job)
    if removed is not None:
        raise ResultsRemoved(removed)


def open_file(root: Path, path: tuple[str, ...]) -> BinaryIO | None:
    """The regular file at ``path`` below ``root``; None where there is none. ``root`` itself is trusted."""
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for part in path[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(path[-1], _FILE, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def files(root: Path, folder: tuple[str, ...]) -> list[Found]:
    """The regular files below ``root / folder``, by name; none where the folder is missing or a link."""
    if root.joinpath(*folder).is_symlink():
        return []
    return sorted(_walk(root, folder), key=lambda found: found.path)


def _walk(root: Path, folder: tuple[str, ...]) -> Iterator[Found]:
    try:
        entries = list(os.scandir(root.joinpath(*folder)))
    except OSError:
        return
    for entry in entries:
        path = (*folder, entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)
        elif entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone since
            yield Found(path, status.st_size, bool(status.st_mode & 0o111), status.st_mtime)
