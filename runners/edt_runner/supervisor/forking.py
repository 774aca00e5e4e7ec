"""Forks children of a supervisor, which has one thread, and sends them signals.

A fork is only safe from a process with one thread. numpy's OpenBLAS would start a pool of threads when it is imported,
so the supervisor is started with OPENBLAS_NUM_THREADS=1. Nothing in this process may compute, because that could start
another pool of threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable

from edt_contract import processes
from edt_contract.attempt import AttemptSpec
from edt_runner.errors import RunnerError, is_lost_helper, status_of_lost_helper
from edt_runner.supervisor import users

_SHARE_SECONDS = 60.0
_inherited: frozenset[int] = frozenset()
"""Descriptors that children keep open."""
_descriptor_limit: tuple[int, int] | None = None
"""Soft and hard limit of open descriptors that children get; None: those of this process."""


def begin() -> None:
    """Note which descriptors are open now: standard streams, and descriptors that libraries have opened. Descriptors
    that are opened later are this process's own connections.

    A supervisor holds six descriptors for each process of a gang, and the usual soft limit is 1024. So this process
    takes the hard limit. Children get the soft limit back, since programs with ``select`` go wrong above 1024.
    """
    global _inherited, _descriptor_limit  # noqa: PLW0603 - a process has one set of descriptors
    _inherited = frozenset(_open_descriptors())
    _descriptor_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (_descriptor_limit[1], _descriptor_limit[1]))


def _open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            os.fstat(int(name))
            found.add(int(name))
    return found


def fork(run: Callable[[], int | None], *, keep: Iterable[int] = ()) -> int:
    """Fork a child that runs ``run``; returns the child's pid.

    The child runs as the script's user, dies with this process, and has default signal handling. It closes this
    process's own connections (``begin``), because a connection does not end while a copy of it is open.

    Args:
        run: called in the child; returns the child's exit status, or None for 0.
        keep: descriptors of own connections that stay open in the child.

    Raises:
        RunnerError: this process has more than one thread.
    """
    if processes.threads() != 1:
        raise RunnerError(f"the supervisor has {processes.threads()} threads and cannot fork safely")
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        gc.freeze()  # else the first collection walks over all that the framework's import has made, and unshares it
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        users.become_script()
        processes.die_with(parent)  # after the change of user, which would undo it
        for descriptor in _open_descriptors() - _inherited - set(keep):
            os.close(descriptor)
        if _descriptor_limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, _descriptor_limit)
        status = run() or 0
    except BaseException as error:
        if is_lost_helper(error):
            status = status_of_lost_helper(error)
        traceback.print_exc()
    finally:
        os._exit(status)


def send_signal(pid: int, number: int) -> None:
    """Send the signal ``number`` to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def share_files(spec: AttemptSpec) -> None:
    """Let the platform read and delete the files that the script's user has written. A child does this; it is killed
    after a minute. If user code runs as this process's own user, nothing is done.

    Raises:
        RunnerError: this process has more than one thread.
    """
    if not users.separate():
        return
    folders = (spec.result_dir, spec.work_dir, spec.log_dir, spec.checkpoint_dir)
    pid = fork(lambda: users.share(folders))
    until = time.monotonic() + _SHARE_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.02)
