"""Opens files in folders that a job can write, where the job may have put a link, a pipe or a folder in their place.

Such a thing is not followed, waited for or read. Permissions taken away from this process's user are restored.
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

OF_THE_JOB = 3
"""The last components of a spool file's path that the job could have replaced: ``spool/<fence>-<node>/file``."""
_NOT_OURS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


def open_regular(path: Path, flags: int, of_the_job: int) -> int:
    """Open the regular file at ``path``. The job could have replaced the last ``of_the_job`` components of the path.

    Anything else that lies there is renamed if ``flags`` create the file.

    Raises:
        FileNotFoundError: there is no file, or something else than a file.
        OSError: it cannot be opened.
    """
    make = bool(flags & os.O_CREAT)
    folder = _open_folder(path.parent, of_the_job - 1, make)
    try:
        return _open_one(path.name, flags, folder, stat.S_ISREG, make)
    finally:
        os.close(folder)


def make_folder(path: Path, of_the_job: int) -> None:
    """Make a folder if it is missing. Anything else that lies there, or in place of the last ``of_the_job`` components,
    is renamed."""
    path.parents[of_the_job - 1].mkdir(parents=True, exist_ok=True)
    os.close(_open_folder(path, of_the_job, make=True))


def read(path: Path, most: int, of_the_job: int = 1) -> bytes | None:
    """The contents of a file of at most ``most`` bytes; None: there is none, it is longer, or it cannot be read."""
    try:
        handle = open_regular(path, os.O_RDONLY, of_the_job)
    except OSError:
        return None
    try:
        data = os.read(handle, most + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= most else None


def _open_folder(path: Path, of_the_job: int, make: bool) -> int:
    folder = os.open([path, *path.parents][of_the_job], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.parts[len(path.parts) - of_the_job :]:
        outer = folder
        try:
            folder = _open_one(part, os.O_RDONLY | os.O_DIRECTORY, outer, stat.S_ISDIR, make)
        finally:
            os.close(outer)
    return folder


def _open_one(name: str, flags: int, folder: int, is_right: Callable[[int], bool], make: bool) -> int:
    if make:
        with contextlib.suppress(FileNotFoundError):
            if not is_right(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                log.error("%s: the job has put something else there, which is renamed", name)
                os.rename(name, f"{name}.{time.time_ns()}", src_dir_fd=folder, dst_dir_fd=folder)
        if flags & os.O_DIRECTORY:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
    handle = _open(name, flags, folder, is_right)
    if not is_right(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "it is no file of OpenEDT", name)
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
            raise FileNotFoundError(errno.ENOENT, "it is no file of OpenEDT", name) from error
        raise


def _allow_owner(name: str, folder: int, is_right: Callable[[int], bool]) -> None:
    """Let its owner read and write it again, which works only for the owner."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(place).st_mode
        if is_right(mode):
            wanted = stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o600)
            Path(f"/proc/self/fd/{place}").chmod(wanted)
    finally:
        os.close(place)
