"""Copies a job's newest checkpoint out of its folder, for another job to begin from. This module reads the job's folder
and writes the copy.

The job owns its folder and may have put links or pipes there, so no link is followed and no pipe is waited for. It is
a copy and no hard link: what the one job writes into its files must not reach the other.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edt_contract import durable
from edt_contract.checkpoints import MANIFEST, STATE, Checkpoint, CheckpointDamaged, is_name, verify

_TRIES = 3
"""A job that trains removes its older checkpoints. So what was listed may be gone when it is copied."""
_PIECE = 1 << 30
_NO_COPY_IN_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_newest(checkpoints: Path, to: Path) -> Checkpoint | None:
    """Copy the newest whole checkpoint.

    Args:
        checkpoints: the folder of a job's checkpoints.
        to: the folder to make; its parent is there. The copy is durable in it, and has its checkpoint's name.

    Returns:
        The copy, whose digests match; None: there is no whole checkpoint, and ``to`` was not made.

    Raises:
        OSError: the copy cannot be written, or the folder cannot be read.
    """
    to.mkdir()
    try:
        for _ in range(_TRIES):
            found = _copy_one(checkpoints, to)
            if found is not None:
                durable.sync(found.path)
                durable.sync(to)
                return found
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise
    to.rmdir()
    return None


def _copy_one(checkpoints: Path, to: Path) -> Checkpoint | None:
    with _folder(checkpoints) as parent:
        if parent is None:
            return None
        with os.scandir(parent) as entries:
            names = sorted((entry.name for entry in entries if is_name(entry.name)), reverse=True)
        for name in names:
            copy = to / name
            try:
                if _copied(parent, name, copy):
                    return verify(copy)
            except CheckpointDamaged:
                pass
            shutil.rmtree(copy, ignore_errors=True)
    return None


def _copied(parent: int, name: str, copy: Path) -> bool:
    """Copy one checkpoint. False: a part of it is not there, or is no file."""
    with _folder(name, parent) as folder:
        if folder is None:
            return False
        copy.mkdir()
        return all(_copy_file(folder, file, copy / file) for file in (MANIFEST, STATE))


@contextmanager
def _folder(path: Path | str, parent: int | None = None) -> Iterator[int | None]:
    """Open a folder; None: it is not there, or is none."""
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


def _copy_file(folder: int, name: str, to: Path) -> bool:
    try:
        source = os.open(name, _READ | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return False
        raise
    with os.fdopen(source, "rb") as reader:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return False
        with to.open("wb") as writer:
            try:
                while os.copy_file_range(source, writer.fileno(), _PIECE):
                    pass
            except OSError as error:
                if error.errno not in _NO_COPY_IN_KERNEL:
                    raise
                writer.truncate(0)
                writer.seek(0)
                reader.seek(0)
                shutil.copyfileobj(reader, writer, 1 << 20)
        durable.sync(to)
    return True
