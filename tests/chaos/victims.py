"""Who is meant by a blow: processes of a home by what they are called and what they bear."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from chaos.choices import Kind
from checker.machine import Process, children, lives, processes
from support.gangs import COUNTING as GANG
from support.running_platform import Platform

_T = TypeVar("_T")
_NAMES = {
    Kind.ENGINE: "edt-engine",
    Kind.ENGINE_STOP: "edt-engine",
    Kind.DRIVER: "edt-driver",
    Kind.COORDINATOR: "edt-coordinator",
    Kind.SUPERVISOR: "edt-supervisor",
}
_MODULES = {Kind.AGENT: "edt_agent", Kind.SCHEDULER: "edt_scheduler", Kind.API: "edt_api"}


def of(kind: Kind, platform: Platform) -> list[Process]:
    """All that a blow of this kind may hit, always in the same order."""
    found = processes(platform.tag)
    if kind in _NAMES:
        chosen = [process for process in found if process.life and process.name == _NAMES[kind]]
    elif kind is Kind.RANK:
        chosen = [each for each in found if each.life and GANG.name in each.command and not _ours(each)]
    elif kind is Kind.FREEZE:
        return [each for module in _MODULES for each in of(module, platform)]
    elif kind in _MODULES:
        heads = {each.pid for each in found if not each.life and f"-m {_MODULES[kind]}" in each.command}
        # Their own children, Celery's worker say, die with them.
        chosen = [each for each in found if each.pid in heads and each.parent not in heads]
    elif kind is Kind.BROKER:
        chosen = (
            [each for each in children(platform.up.pid) if "valkey" in each.name] if platform.up is not None else []
        )
    elif kind is Kind.PLATFORM:
        chosen = [each for each in found if platform.up is not None and each.pid == platform.up.pid]
    else:
        chosen = []
    return sorted(chosen, key=lambda process: (process.node, process.start, process.pid))


def _ours(process: Process) -> bool:
    """Whether it is the runner's own, and not a process that runs the user's command."""
    return process.name.startswith("edt-")


def pick(those: Sequence[_T], aim: float) -> _T | None:
    """The one that ``aim`` in [0, 1) points at."""
    return those[int(aim * len(those))] if those else None


def hit(process: Process, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to exactly this process; False: it is gone already."""
    with suppress(ProcessLookupError):
        if lives(*process.identity):
            os.kill(process.pid, number)
            return True
    return False
