"""Copies files out of the folders of jobs. This module reads what it is told to, and writes the copies.

A job owns its folder, may have put links or pipes there, and may still write. So folders are opened one in another, no
link is followed, no pipe is waited for, and of a file no more is copied than it held when it was opened. What is made
is a copy and no hard link: what the one job writes into its files must not reach the other.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edt_contract import durable

RESERVE_BYTES = 256 << 20
"""A copy leaves so much of the home's disk free, for the database and for what jobs write."""
_NO_COPY_IN_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_FILE = {errno.ENOENT, errno.ELOOP, errno.ENXIO}
_PIECE = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLarge(ValueError):
    """There is more to copy than may be copied. The message says what, and how much may be."""


@contextmanager
def folder(path: Path | str, parent: int | None = None) -> Iterator[int | None]:
    """Open a folder, below the open folder ``parent`` if one is given; None: it is not there, or is no folder."""
    try:
        handle = os.open(path, _READ | os.O_DIRECTORY, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        handle = None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def copy_file(parent: int, name: str, to: Path, *, most: int | None = None) -> int | None:
    """Copy one file durably. Others may execute the copy if they may execute the file.

    Args:
        parent: the open folder that it is in.
        name: its name there.
        to: the file to make.
        most: the most bytes that it may have; None: as many as the disk takes.

    Returns:
        The number of bytes that were copied; None: it is not there, or is no regular file.

    Raises:
        TooLarge: it has more than ``most`` bytes. Nothing was made.
        OSError: it cannot be read, or the copy cannot be written; ENOSPC: the disk would have less than RESERVE_BYTES
            free.
    """
    try:
        source = os.open(name, _READ | os.O_NONBLOCK, dir_fd=parent)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    try:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if most is not None and facts.st_size > most:
            raise TooLarge(f"{name!r} has {facts.st_size} bytes, at most {most} are copied")
        _need_room(to.parent, facts.st_size)
        with to.open("wb") as writer:
            _copy(source, writer.fileno(), facts.st_size)
        if facts.st_mode & 0o111:
            to.chmod(0o755)
        durable.sync(to)
        return facts.st_size
    finally:
        os.close(source)


def _need_room(place: Path, size: int) -> None:
    free = durable.free_bytes(place)
    if free is not None and free < size + RESERVE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))


def _copy(source: int, target: int, size: int) -> None:
    """Copy the first ``size`` bytes, or all if the file has become shorter meanwhile."""
    left, in_kernel = size, True
    while left:
        if in_kernel:
            try:
                copied = os.copy_file_range(source, target, min(left, 1 << 30))
            except OSError as error:
                if error.errno not in _NO_COPY_IN_KERNEL:
                    raise
                in_kernel = False
                continue
        else:
            data = os.read(source, min(left, _PIECE))
            durable.write_all(target, data)
            copied = len(data)
        if not copied:
            return
        left -= copied
