"""Copies the code of a job that is over, for a new job. This module reads the job's folder and writes the copy.

The job has worked in that folder, so it may hold whatever the job has left there. An upload has no links and no special
files, and limits on its size; the copy is made by the same rules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edt_contract import durable
from edt_scheduler.home.copying import TooLarge, copy_file, folder

_LEFT_OUT = "__pycache__"


@dataclass(frozen=True)
class Limits:
    """How much code a job may have. The limits of unpacked uploads are these, too."""

    members: int = 50_000
    """The most files and folders."""
    total_bytes: int = 2 << 30
    """The most bytes of all files together."""
    file_bytes: int = 1 << 30
    depth: int = 32
    """The most folders inside each other."""


LIMITS = Limits()


def copy_code(code: Path, to: Path, limits: Limits = LIMITS) -> None:
    """Copy the code of a job durably: its folders and regular files. Links, pipes and devices are left out, and what
    Python has compiled.

    Args:
        code: the folder of a job's code.
        to: the folder to make; its parent is there.
        limits: limits on sizes and counts.

    Raises:
        FileNotFoundError: there is no such folder, or it is a link.
        TooLarge: it exceeds a limit. What was copied so far is left, as after any other error.
        OSError: it cannot be read, or the copy cannot be written.
    """
    with folder(code) as handle:
        if handle is None:
            raise FileNotFoundError(code)
        _Copying(limits).copy(handle, to, 0)
    durable.sync(to.parent)


class _Copying:
    """One copy, and how much of its limits is left."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._members, self._bytes = 0, 0

    def copy(self, source: int, to: Path, depth: int) -> None:
        if depth > self._limits.depth:
            raise TooLarge(f"it has more than {self._limits.depth} folders inside each other")
        to.mkdir(mode=0o755)
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.name == _LEFT_OUT:
                    continue
                self._count()
                if entry.is_dir(follow_symlinks=False):
                    with folder(entry.name, source) as inner:
                        if inner is not None:
                            self.copy(inner, to / entry.name, depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    self._copy_file(source, entry.name, to / entry.name)
        durable.sync(to)

    def _count(self) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise TooLarge(f"it has more than {self._limits.members} files and folders")

    def _copy_file(self, source: int, name: str, to: Path) -> None:
        left = self._limits.total_bytes - self._bytes
        try:
            self._bytes += copy_file(source, name, to, most=min(left, self._limits.file_bytes)) or 0
        except TooLarge:
            if left < self._limits.file_bytes:
                raise TooLarge(f"all its files together have more than {self._limits.total_bytes} bytes") from None
            raise
