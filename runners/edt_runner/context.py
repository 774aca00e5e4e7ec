"""What a process that the supervisor forked is: driver or engine, and of which attempt.

``train()`` looks here to learn its role; a process that no supervisor forked has no context.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

from edt_contract.attempt import AttemptSpec


@dataclass(frozen=True)
class Context:
    """A driver or an engine of one attempt."""

    role: str
    """``driver`` or ``engine``."""
    spec: AttemptSpec
    coordinator: str
    """``host:port`` at which the coordinator was when this process was forked."""
    name: str = ""
    """Of an engine: its allocation id in decimal digits."""
    device: str = "cpu"
    """Of an engine: ``cpu``, or a GPU as CUDA_VISIBLE_DEVICES names it."""
    page: mmap.mmap | None = None
    """Of an engine: shared memory in which it writes what it is doing (``protocol.engine_status``)."""
    report_failure: Callable[[str, str], None] | None = None
    """Says to the supervisor why this process fails: (message, traceback). For code that ends it without raising."""


_current: Context | None = None


def current() -> Context | None:
    """The context of this process; None: started by hand."""
    return _current


def enter(context: Context) -> None:
    """Set the context of this process; called once, in the freshly forked child."""
    global _current  # noqa: PLW0603 - a process has one role, and user code calls train() without naming it
    _current = context


training = ""
"""Name of the user's call by which this process's training has begun (``launch.train.claim``); empty: it has not."""
