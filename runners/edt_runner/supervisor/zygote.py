"""Forking: a process that has imported everything once, and children that start in milliseconds. Room: runners.

A fork is only safe from a process with one thread. numpy's OpenBLAS starts a pool when it is imported, hence
OPENBLAS_NUM_THREADS=1; nothing here may compute, or another pool would start.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable

from edt_runner import exits, processes
from edt_runner.errors import RunnerError, is_lost_helper
from edt_runner.supervisor import users


def fork(run: Callable[[], int], *, keep: Iterable[int], close: Iterable[int]) -> int:
    """Fork a child that runs ``run`` and exits with its result; returns the child's pid.

    The child is the script's user, dies with this process, has default signal handling, and does not hold ``close``
    (descriptors of the parent's other conversations: a copy would keep them from ever ending) unless also in ``keep``.
    """
    if processes.threads() != 1:
        raise RunnerError(f"the supervisor has {processes.threads()} threads and cannot fork safely")
    parent = os.getpid()
    kept = set(keep)
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        users.become_script()
        processes.die_with(parent)  # which a change of user would undo
        for descriptor in set(close) - kept:
            os.close(descriptor)
        status = run()
    except BaseException as error:
        if is_lost_helper(error):
            status = exits.of_lost_helper(error)
        traceback.print_exc()
    finally:
        os._exit(status)
