"""Opens files in folders into which a job can write. The job may have put a link, a pipe or a folder in their place.

The functions do not follow such a link, do not wait for such a pipe, and read neither. If the job has taken away
permissions of this process's user, the functions restore them.
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
"""Number of components at the end of a spool file's path that the job could have replaced:
``spool/<fence>-<node>/file``."""
_NOT_OURS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


def open_regular(path: Path, flags: int, of_the_job: int) -> int:
    """Open the regular file at ``path``; returns its descriptor.

    If something else than a file lies there, and ``flags`` create the file, the other thing is renamed.

    Args:
        path: the file.
        flags: flags of ``os.open``.
        of_the_job: number of components at the end of the path that the job could have replaced.

    Raises:
        FileNotFoundError: nothing lies there, or something else than a file.
        OSError: the file cannot be opened.
    """
    make = bool(flags & os.O_CREAT)
    folder = _open_folder(path.parent, of_the_job - 1, make)
    try:
        return _open_one(path.name, flags, folder, stat.S_ISREG, make)
    finally:
        os.close(folder)


def make_folder(path: Path, of_the_job: int) -> None:
    """Make a folder if it is missing. If something else than a folder lies in place of one of the last ``of_the_job``
    components, the other thing is renamed.

    Raises:
        OSError: the folder cannot be made.
    """
    path.parents[of_the_job - 1].mkdir(parents=True, exist_ok=True)
    os.close(_open_folder(path, of_the_job, make=True))


def read(path: Path, most: int, of_the_job: int = 1) -> bytes | None:
    """The contents of a file of at most ``most`` bytes. None: there is no file, it is longer, or it cannot be read."""
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
    """Give the owner the permissions to read and write the file again. Only the owner may do this."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(place).st_mode
        if is_right(mode):
            wanted = stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o600)
            Path(f"/proc/self/fd/{place}").chmod(wanted)
    finally:
        os.close(place)
