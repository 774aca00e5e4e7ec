"""A small disk that a test fills to the last block and makes room on again. Needs ``tmpfs_mount``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.tmpfs_mount import tmpfs_mount

_FILLER = "what somebody else has put here"


class SmallDisk:
    """One that is mounted on ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Leave no block of it free. What others have begun to fill they may fill to its end."""
        handle = os.open(self.folder / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (1 << 16, 1 << 12, 1):
                while _takes(handle, size):
                    pass
        finally:
            os.close(handle)

    def make_room(self) -> None:
        (self.folder / _FILLER).unlink()


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """A disk of so many bytes at ``folder``, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tmpfs_mount(folder, size_bytes):
        yield SmallDisk(folder)


def _takes(handle: int, size: int) -> bool:
    try:
        os.write(handle, b"\0" * size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True
