"""What a process that the supervisor forked is: driver or engine, of which attempt. Room: runners; stdlib only.

``train()`` looks here to learn its role; a process that no supervisor forked has no context.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

from edt_runner.contract import Letter


@dataclass(frozen=True)
class Context:
    """Role of this process."""

    role: str
    """``driver`` or ``engine``."""
    letter: Letter
    coordinator: str
    """``host:port``."""
    name: str = ""
    """Of an engine: its allocation id."""
    device: str = "cpu"
    page: mmap.mmap | None = None
    """Of an engine: where it writes what it is doing (``engine.position``)."""
    tell: Callable[[str, str], None] | None = None
    """Says why this process fails: (message, traceback). For who ends it without raising."""


_current: Context | None = None


def current() -> Context | None:
    """The context of this process; None: started by hand."""
    return _current


def enter(context: Context) -> None:
    """Once, by the freshly forked child."""
    global _current  # noqa: PLW0603 - a process has one role, and user code calls train() without naming it
    _current = context


training = ""
"""The call that this process's training began by, as its user knows it; empty: there was none yet."""


def begin_training(call: str) -> None:
    global training  # noqa: PLW0603 - one a process
    training = call
