"""The Unix users that the supervisor and the job's code run as.

In a container the supervisor's own files (spool, socket, ``attempt.json``) belong to one user, and the job's code runs
as another user in the same group. The supervisor starts as root with three capabilities and changes to its own user
before it reads the spec or imports the framework. It keeps the three capabilities, because it must fork children that
run as the script's user, send signals to them, and open the job's files as that user. Under the process launcher no
users are named: everything runs as one user, and this module does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable, Iterator

from edt_contract.processes import prctl

_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_KILL, _SETGID, _SETUID = 5, 6, 7
_KEPT = 1 << _KILL | 1 << _SETGID | 1 << _SETUID
_CAPABILITY_VERSION_3 = 0x20080522
_GROUP_MAY = 0o070
_SET_GROUP = stat.S_ISGID
_libc = ctypes.CDLL(None, use_errno=True)

User = tuple[int, int]
"""uid and gid."""

_own: User | None = None
_script: User | None = None


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def parse(text: str) -> User:
    """Read a user from text such as ``10001:10001``.

    Raises:
        ValueError: the text is not two numbers with a colon between them.
    """
    user, _, group = text.partition(":")
    return int(user), int(group)


def become(own: User, script: User) -> None:
    """Change this process from root to the user ``own``. Its children will become the user ``script``.

    Raises:
        OSError: the process may not change its user or its capabilities.
    """
    global _own, _script
    prctl(_PR_SET_KEEPCAPS, 1)
    _change(own)
    _set_capabilities(_KEPT)
    _own, _script = own, script


def become_script() -> None:
    """Change this process permanently to the script's user, without capabilities. A new child calls this before it
    runs any user code.

    Raises:
        OSError: the process may not change its user.
    """
    if _script is None:
        return
    _change(_script)
    _set_capabilities(0)
    prctl(_PR_SET_DUMPABLE, 1)  # otherwise root would own this process's folder in /proc
    os.umask(0o002)


@contextlib.contextmanager
def as_script() -> Iterator[None]:
    """Access files in this block with the rights of the script's user. The job may have replaced a file by a link;
    then the supervisor can reach no more through the link than the job can."""
    if _own is None or _script is None:
        yield
        return
    before = os.umask(0o002)
    _libc.setfsuid(_script[0])
    try:
        yield
    finally:
        _libc.setfsuid(_own[0])
        os.umask(before)


def of_script() -> User:
    """The user that the job's code runs as: that of this process, unless another one is named."""
    return _script or (os.getuid(), os.getgid())


def separate() -> bool:
    """Whether the job's code runs as another user than this process."""
    return _script is not None


def share(folders: Iterable[str]) -> None:
    """Let the group read, change and remove all files below these folders that belong to this process's user. A script
    may have set any mode; without this the platform could neither show nor delete such files."""
    me = os.getuid()
    for folder in folders:
        for _, names, files, descriptor in os.fwalk(folder):
            for name in (*names, *files):
                with contextlib.suppress(OSError):
                    _share(name, descriptor, me)


def _share(name: str, folder: int, me: int) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        now = os.fstat(handle)
        wanted = now.st_mode | (_GROUP_MAY | _SET_GROUP | 0o700 if stat.S_ISDIR(now.st_mode) else 0o660)
        if now.st_uid == me and wanted != now.st_mode and (stat.S_ISDIR(now.st_mode) or stat.S_ISREG(now.st_mode)):
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(wanted))  # noqa: PTH101
    finally:
        os.close(handle)


def _change(user: User) -> None:
    os.setgroups([])
    os.setresgid(user[1], user[1], user[1])
    os.setresuid(user[0], user[0], user[0])


def _set_capabilities(kept: int) -> None:
    sets = (_Sets * 2)(_Sets(kept, kept, 0), _Sets(0, 0, 0))
    if _libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), sets) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")
