"""Room: runners, agent. Files in folders that a job can write, opened without being led astray.

A link, a pipe or a folder in the place of a file is not followed, waited for or read; permissions that were taken away
from our own user are put back.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_NOT_OURS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


def opened(path: Path, flags: int, of_the_job: int) -> int:
    """A descriptor of the regular file at ``path``, of which the job could have put something else in the place of the
    last ``of_the_job`` components. What else lies there is put aside where the file may be created; else it counts as
    no file: FileNotFoundError."""
    make = bool(flags & os.O_CREAT)
    folder = os.open(path.parents[of_the_job - 1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *inner, name = path.parts[-of_the_job:]
    try:
        for part in inner:
            deeper = _open_one(part, os.O_RDONLY | os.O_DIRECTORY, folder, stat.S_ISDIR, make)
            os.close(folder)
            folder = deeper
        return _open_one(name, flags, folder, stat.S_ISREG, make)
    finally:
        os.close(folder)


def make_folder(path: Path, of_the_job: int) -> None:
    """Make a folder where it is missing. What else lies there, or on the last ``of_the_job`` steps of the way, is put
    aside."""
    path.parents[of_the_job - 1].mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parents[of_the_job - 1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parts[-of_the_job:]:
            deeper = _open_one(part, os.O_RDONLY | os.O_DIRECTORY, folder, stat.S_ISDIR, True)
            os.close(folder)
            folder = deeper
    finally:
        os.close(folder)


def read(path: Path, most: int, of_the_job: int = 1) -> bytes | None:
    """What is in a file of at most ``most`` bytes; None: there is none, or it is longer, or no file."""
    try:
        handle = opened(path, os.O_RDONLY, of_the_job)
    except OSError:
        return None
    try:
        data = os.read(handle, most + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= most else None


def _open_one(name: str, flags: int, folder: int, is_right: Callable[[int], bool], make: bool) -> int:
    if make:
        with contextlib.suppress(FileNotFoundError):
            if not is_right(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                log.error("%s: what a job put there is put aside", name)
                os.rename(name, f"{name}.{time.time_ns()}", src_dir_fd=folder, dst_dir_fd=folder)
        if flags & os.O_DIRECTORY:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
    handle = _open(name, flags, folder, is_right)
    if not is_right(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "it is no file of ours", name)
    return handle


def _open(name: str, flags: int, folder: int, is_right: Callable[[int], bool]) -> int:
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            return os.open(name, safe, 0o644, dir_fd=folder)
        except PermissionError:
            _allow_owner(name, folder, is_right)
            return os.open(name, safe, 0o644, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise FileNotFoundError(errno.ENOENT, "it is no file of ours", name) from error
        raise


def _allow_owner(name: str, folder: int, is_right: Callable[[int], bool]) -> None:
    """Let its owner read and write it again, if that is who we are."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(place).st_mode
        if is_right(mode):
            wanted = stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o600)
            Path(f"/proc/self/fd/{place}").chmod(wanted)
    finally:
        os.close(place)
