"""A supervisor's children: forked with their pipes, watched, and collected when they have ended. Room: runners."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_runner import environment
from edt_runner.context import Context
from edt_runner.supervisor import child, zygote
from edt_runner.supervisor.outputs import LogPipe


@dataclass
class Child:
    """One driver or engine."""

    pid: int
    outputs: list[LogPipe]
    lifeline: int
    """Read end of the pipe on which it says, at its end, what user code raised."""
    started: float
    last_words: dict[str, Any] = field(default_factory=dict)

    def descriptors(self) -> list[int]:
        """What this process holds for it, and no other child may inherit."""
        return [*(pipe.reader for pipe in self.outputs), self.lifeline]

    def signal(self, number: int) -> None:
        send_signal(self.pid, number)

    def collect(self, selector: selectors.BaseSelector) -> None:
        """It is gone: take what it wrote last."""
        for pipe in self.outputs:
            with contextlib.suppress(KeyError):
                selector.unregister(pipe)
            pipe.drain()
        with contextlib.suppress(OSError, ValueError):
            self.last_words = json.loads(os.read(self.lifeline, 1 << 16) or b"{}")
        os.close(self.lifeline)


def start(role: Context, stem: str, selector: selectors.BaseSelector, close: Iterable[int]) -> Child:
    """Fork a child that runs the user's main as ``role``; its output goes to ``stem``.out and .err in the log folder.

    ``close``: descriptors of this process's other conversations.
    """
    limit = environment.log_limit_bytes()
    outputs = [LogPipe(Path(role.letter.log_dir) / f"{stem}.{stream}", limit) for stream in ("out", "err")]
    lifeline, far_end = os.pipe()
    os.set_blocking(lifeline, False)
    pid = zygote.fork(
        lambda: child.run_main(role, outputs[0].writer, outputs[1].writer, far_end),
        keep=[],
        close=[*close, *(pipe.reader for pipe in outputs), lifeline],
    )
    os.close(far_end)
    for pipe in outputs:
        pipe.forked()
        selector.register(pipe, selectors.EVENT_READ, _pump(pipe, selector))
    return Child(pid, outputs, lifeline, time.monotonic())


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill(pid: int) -> None:
    """SIGKILL to a process that may have ended."""
    send_signal(pid, signal.SIGKILL)


def _pump(pipe: LogPipe, selector: selectors.BaseSelector) -> Callable[[], None]:
    def pump() -> None:
        if not pipe.pump():
            selector.unregister(pipe)

    return pump
