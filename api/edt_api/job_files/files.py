"""Reads files that a job wrote, and never leaves the job's folder. Reads below one job's folder only.

User code may put links, pipes and devices into its folders. The functions here follow no link at any component of a
path below the job's folder, and open only regular files.
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
    """A regular file, with its properties when it was found."""

    path: tuple[str, ...]
    """Components of the path below the root."""
    size: int
    executable: bool
    changed_at: float


def must_be_kept(job: JobView) -> None:
    """Check that the job's files have not been removed.

    Raises:
        ResultsRemoved: the files were removed, or are being removed, because of their age.
    """
    removed = to_wire.results_removed(job)
    if removed is not None:
        raise ResultsRemoved(removed)


def open_file(root: Path, path: tuple[str, ...]) -> BinaryIO | None:
    """Return the regular file at ``path`` below ``root``; None if there is none. ``root`` itself is trusted."""
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
    """Return the regular files below ``root / folder``, sorted by path; none if the folder is missing or a link."""
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
                continue  # the file has vanished meanwhile
            yield Found(path, status.st_size, bool(status.st_mode & 0o111), status.st_mtime)
