"""Warm supervisors: they have imported their framework and wait for a spec on their standard input.

One is kept of each kind that this node uses: PyTorch's from the beginning, another kind's from its first job on, or
from the beginning where EDT_WARM names it. If the agent dies, the spec never comes, and the supervisor exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from edt_agent.errors import StartFailed, backoff_seconds
from edt_agent.processes import Child, alive, kill
from edt_contract.attempt import AttemptSpec
from edt_contract.frameworks import KERAS2_VALUES, KERAS2_VARIABLE, supervisor_environ

log = logging.getLogger(__name__)

_REPLACE_SECONDS = 1.0
"""A new one starts so long after one was taken, so that it does not slow down that job's first steps."""


@dataclass(frozen=True)
class FrameworkKind:
    """What a warm supervisor has imported."""

    framework: str
    keras2: bool = False
    """TensorFlow's Keras is Keras 2."""

    @classmethod
    def of(cls, spec: AttemptSpec) -> FrameworkKind:
        """The kind that this attempt needs."""
        keras = spec.environ.get(KERAS2_VARIABLE, "") if spec.framework == "tensorflow" else ""
        return cls(spec.framework, keras in KERAS2_VALUES)

    @property
    def environ(self) -> dict[str, str]:
        """The variables that it is started with."""
        return supervisor_environ(self.framework, {KERAS2_VARIABLE: "1"} if self.keras2 else None)

    def __str__(self) -> str:
        return f"{self.framework} with Keras 2" if self.keras2 else self.framework


@dataclass
class UnassignedSupervisor:
    """A supervisor that has no spec yet."""

    child: Child
    life: str
    pipe: int
    output: Path


class WarmSupervisors:
    """Keeps one for each framework of ``frameworks``, and one of each kind that is expected later.

    Args:
        spawn: starts one, or raises StartFailed.
        frameworks: those to begin with. Empty: none is ever kept.
    """

    def __init__(self, spawn: Callable[[FrameworkKind], UnassignedSupervisor], frameworks: Collection[str]) -> None:
        self._spawn = spawn
        self._places = {FrameworkKind(framework): _Place() for framework in frameworks}
        self._changed = asyncio.Event()

    @property
    def lives(self) -> set[str]:
        """The EDT_LIFE values of those that wait now."""
        return {place.warm.life for place in self._places.values() if place.warm is not None}

    def expect(self, kind: FrameworkKind) -> None:
        """A job of this kind has come; keep a warm supervisor for the next one."""
        if self._places and kind not in self._places:
            self._places[kind] = _Place(used=True)
            self._changed.set()

    def take(self, kind: FrameworkKind) -> UnassignedSupervisor | None:
        """Take the one that waits; it is replaced. None: there is none."""
        place = self._places.get(kind)
        if place is None or place.warm is None:
            return None
        warm, place.warm = place.warm, None
        place.taken.set()
        if alive(warm.child.id):
            return warm
        os.close(warm.pipe)
        return None

    async def run(self) -> None:
        """Keep them running, for ever."""
        async with asyncio.TaskGroup() as group:
            begun: set[FrameworkKind] = set()
            while True:
                self._changed.clear()
                for kind in self._places.keys() - begun:
                    group.create_task(self._keep_one(kind, self._places[kind]))
                begun |= self._places.keys()
                await self._changed.wait()

    def discard(self) -> None:
        """Kill those that wait. When this returns they are gone."""
        for place in self._places.values():
            place.discard()

    async def _keep_one(self, kind: FrameworkKind, place: _Place) -> None:
        """Keep one of them running. One that dies by itself is replaced after growing pauses."""
        failed = 0
        if place.used:
            await asyncio.sleep(_REPLACE_SECONDS)
        while True:
            try:
                warm = place.warm = self._spawn(kind)
            except StartFailed as error:
                failed += 1
                log.warning("no warm supervisor for %s: %s", kind, error)
                await asyncio.sleep(backoff_seconds(failed))
                continue
            warm.child.on_exit.append(place.taken.set)
            while place.warm is warm and warm.child.status is None:
                place.taken.clear()
                await place.taken.wait()
            if place.warm is None:
                failed = 0
                await asyncio.sleep(_REPLACE_SECONDS)
            else:
                failed += 1
                log.warning("the warm supervisor for %s ended by itself with %s: %s", kind, *_how_it_ended(warm))
                place.discard()
                await asyncio.sleep(backoff_seconds(failed))


class _Place:
    """The warm supervisor of one kind, if there is one now."""

    def __init__(self, *, used: bool = False) -> None:
        self.warm: UnassignedSupervisor | None = None
        self.taken = asyncio.Event()
        self.used = used
        """A job of this kind is just starting, so this one is not urgent."""

    def discard(self) -> None:
        warm, self.warm = self.warm, None
        if warm is None:
            return
        os.close(warm.pipe)  # it would exit by itself, but only after all its imports
        kill([warm.child.id])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(warm.child.id.pid, 0)
        warm.output.unlink(missing_ok=True)


def _how_it_ended(supervisor: UnassignedSupervisor) -> tuple[int | None, str]:
    """Exit status and last line of output."""
    try:
        lines = supervisor.output.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return supervisor.child.status, lines[-1] if lines else "without output"
