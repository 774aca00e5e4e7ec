"""A child that dies with its parent. Room: scheduler. Linux's PR_SET_PDEATHSIG; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when ``parent`` ends. False: it has ended already, end too.

    To be called by the child, first thing. The check afterwards catches a parent that died in between.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
