"""Freed memory stays with the process that freed it, for its next step. Room: runners; the C library's malloc.

glibc maps each large block anew and unmaps it when it is freed, and what lies free at the end of its heap it gives
back: a step that makes and drops its gradients pays for each of their pages anew (a quarter of a step's processor time
at 25 million parameters). Here blocks below 1 GiB come from the heap, and up to 2 GiB at its end are kept: so much of
what a process has needed once, for its data say, may stay with it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of malloc.h."""
_MOST = (1 << 31) - 1
"""Parameters are C ints."""


def keep(environ: Mapping[str, str]) -> None:
    """From now on, in this process and its children. A user's MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ win;
    glibc itself reads them only when a program starts, which was before this process was forked."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        return
    for parameter, name, value in (
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", _MOST),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 1 << 30),
    ):
        with contextlib.suppress(ValueError):  # as glibc does with what it cannot read
            libc.mallopt(parameter, min(int(environ.get(name, value)), _MOST))
