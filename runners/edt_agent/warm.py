"""Room: runners, agent. Supervisors that wait warm for a letter, one of each kind that is wanted here.

Such a one has imported its framework and waits for a line on its standard input. If the agent dies, that line never
comes and it goes too. PyTorch's is there from the beginning; another kind's from its first job on, or from the
beginning where EDT_WARM names it: who never uses a framework pays nothing for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from edt_agent.children import Child
from edt_agent.decide import backoff_seconds
from edt_agent.errors import StartFailed
from edt_agent.processes import alive, kill
from edt_runner.contract import Letter
from edt_runner.environment import KERAS2_VALUES, KERAS2_VARIABLE, supervisor_environ

log = logging.getLogger(__name__)

_REPLACE_SECONDS = 1.0
"""A new warm supervisor is started this long after one was handed out, so as not to compete with its first steps."""


@dataclass(frozen=True)
class Kind:
    """What a warm supervisor has imported."""

    framework: str
    keras2: bool = False
    """TensorFlow's Keras is Keras 2."""

    @classmethod
    def of(cls, letter: Letter) -> Kind:
        """What this attempt needs."""
        keras = letter.environ.get(KERAS2_VARIABLE, "") if letter.framework == "tensorflow" else ""
        return cls(letter.framework, keras in KERAS2_VALUES)

    @property
    def environ(self) -> dict[str, str]:
        """What it is started with."""
        return supervisor_environ(self.framework, {KERAS2_VARIABLE: "1"} if self.keras2 else None)

    def __str__(self) -> str:
        return f"{self.framework} with Keras 2" if self.keras2 else self.framework


@dataclass
class Unassigned:
    """A supervisor that has not got its letter."""

    child: Child
    life: str
    pipe: int
    output: Path


class WarmSupervisors:
    """One for each framework of ``frameworks``, and of each kind that is ``wanted`` later.

    Args:
        spawn: starts one; raises StartFailed.
        frameworks: those to begin with. Empty: none is kept, whatever is wanted.
    """

    def __init__(self, spawn: Callable[[Kind], Unassigned], frameworks: Collection[str]) -> None:
        self._spawn = spawn
        self._kept = {Kind(framework): _Kept() for framework in frameworks}
        self._changed = asyncio.Event()

    @property
    def lives(self) -> set[str]:
        """The marks of those that wait now."""
        return {kept.warm.life for kept in self._kept.values() if kept.warm is not None}

    def wanted(self, kind: Kind) -> None:
        """There is a job of this kind; the next one shall find a warm supervisor."""
        if self._kept and kind not in self._kept:
            self._kept[kind] = _Kept(used=True)
            self._changed.set()

    def take(self, kind: Kind) -> Unassigned | None:
        """The one that waits, which is then the caller's; another takes its place."""
        kept = self._kept.get(kind)
        if kept is None or kept.warm is None:
            return None
        warm, kept.warm = kept.warm, None
        kept.taken.set()
        if alive(warm.child.id):
            return warm
        os.close(warm.pipe)
        return None

    async def keep(self) -> None:
        """Keep them, for ever."""
        async with asyncio.TaskGroup() as group:
            begun: set[Kind] = set()
            while True:
                self._changed.clear()
                for kind in self._kept.keys() - begun:
                    group.create_task(self._keep(kind, self._kept[kind]))
                begun |= self._kept.keys()
                await self._changed.wait()

    def let_go(self) -> None:
        """Give up all that nobody knows yet. When this returns they are gone."""
        for kept in self._kept.values():
            kept.let_go()

    async def _keep(self, kind: Kind, kept: _Kept) -> None:
        """One of them. One that dies by itself is replaced with growing pauses."""
        failed = 0
        if kept.used:
            await asyncio.sleep(_REPLACE_SECONDS)
        while True:
            try:
                warm = kept.warm = self._spawn(kind)
            except StartFailed as error:
                failed += 1
                log.warning("no warm supervisor for %s: %s", kind, error)
                await asyncio.sleep(backoff_seconds(failed))
                continue
            warm.child.on_exit.append(kept.taken.set)
            while kept.warm is warm and warm.child.status is None:
                kept.taken.clear()
                await kept.taken.wait()
            if kept.warm is None:
                failed = 0
                await asyncio.sleep(_REPLACE_SECONDS)
            else:
                failed += 1
                log.warning("the warm supervisor for %s ended by itself with %s: %s", kind, *_how(warm))
                kept.let_go()
                await asyncio.sleep(backoff_seconds(failed))


class _Kept:
    """The place of one."""

    def __init__(self, *, used: bool = False) -> None:
        self.warm: Unassigned | None = None
        self.taken = asyncio.Event()
        self.used = used
        """It is there for the sake of jobs that come after one which is just starting."""

    def let_go(self) -> None:
        warm, self.warm = self.warm, None
        if warm is None:
            return
        os.close(warm.pipe)  # without a letter it would exit by itself, but not before it has imported all
        kill([warm.child.id])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(warm.child.id.pid, 0)
        warm.output.unlink(missing_ok=True)


def _how(supervisor: Unassigned) -> tuple[int | None, str]:
    """Status and last words."""
    try:
        lines = supervisor.output.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return supervisor.child.status, lines[-1] if lines else "it said nothing"
