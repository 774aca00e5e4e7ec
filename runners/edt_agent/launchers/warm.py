"""Keeps warm supervisors. A warm supervisor has imported its framework and waits for a spec on its standard input.

The agent keeps one warm supervisor of each kind that this node uses. It starts the kinds that EDT_WARM names at once
(by default PyTorch), and any other kind at its first job. If the agent dies, the supervisor's input ends without a
spec, and the supervisor exits.
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
from edt_contract.frameworks import KERAS2_VALUES, KERAS2_VARIABLE, NO_FRAMEWORK, supervisor_environ

log = logging.getLogger(__name__)

_REPLACE_SECONDS = 1.0
"""Seconds between the use of a warm supervisor and the start of the next one, so that the start does not slow down the
job's first steps."""


@dataclass(frozen=True)
class FrameworkKind:
    """The framework that a supervisor imports, with the variant of Keras."""

    framework: str
    """Its name; NO_FRAMEWORK for gangs."""
    keras2: bool = False
    """Whether TensorFlow uses Keras 2."""

    @classmethod
    def of(cls, spec: AttemptSpec) -> FrameworkKind:
        """The kind that this attempt needs."""
        if spec.gang is not None:
            return cls(NO_FRAMEWORK)
        keras = spec.environ.get(KERAS2_VARIABLE, "") if spec.framework == "tensorflow" else ""
        return cls(spec.framework, keras in KERAS2_VALUES)

    @property
    def environ(self) -> dict[str, str]:
        """The framework's environment variables for the start of a supervisor."""
        return supervisor_environ(self.framework, {KERAS2_VARIABLE: "1"} if self.keras2 else None)

    def __str__(self) -> str:
        return f"{self.framework} with Keras 2" if self.keras2 else self.framework


@dataclass
class UnassignedSupervisor:
    """A supervisor that has no spec yet."""

    child: Child
    life: str
    """Value of EDT_LIFE in the supervisor."""
    pipe: int
    """Write end of the pipe that is the supervisor's standard input; -1: closed."""
    output: Path
    """File with the supervisor's output."""


class WarmSupervisors:
    """Keeps one warm supervisor for each framework of ``frameworks``, and one of each kind that ``expect`` adds.

    Args:
        spawn: starts a supervisor, or raises StartFailed.
        frameworks: the first frameworks. If empty, no warm supervisor is ever kept.
    """

    def __init__(self, spawn: Callable[[FrameworkKind], UnassignedSupervisor], frameworks: Collection[str]) -> None:
        self._spawn = spawn
        self._places = {FrameworkKind(framework): _Place() for framework in frameworks}
        self._changed = asyncio.Event()

    @property
    def lives(self) -> set[str]:
        """The EDT_LIFE values of the warm supervisors that wait now."""
        return {place.warm.life for place in self._places.values() if place.warm is not None}

    def expect(self, kind: FrameworkKind) -> None:
        """Note that a job of this kind has come, and keep a warm supervisor for the next such job."""
        if self._places and kind not in self._places:
            self._places[kind] = _Place(used=True)
            self._changed.set()

    def take(self, kind: FrameworkKind) -> UnassignedSupervisor | None:
        """Take the waiting supervisor of this kind; another one will be started. None: there is none."""
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
        """Keep the warm supervisors running, for ever."""
        async with asyncio.TaskGroup() as group:
            begun: set[FrameworkKind] = set()
            while True:
                self._changed.clear()
                for kind in self._places.keys() - begun:
                    group.create_task(self._keep_one(kind, self._places[kind]))
                begun |= self._places.keys()
                await self._changed.wait()

    def discard(self) -> None:
        """Kill the waiting supervisors. When this returns, they are gone."""
        for place in self._places.values():
            place.discard()

    async def _keep_one(self, kind: FrameworkKind, place: _Place) -> None:
        """Keep one supervisor of this kind running. If it dies by itself, start another one after growing pauses."""
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
        """Whether a job of this kind is just starting, so that the next warm supervisor is not urgent."""

    def discard(self) -> None:
        warm, self.warm = self.warm, None
        if warm is None:
            return
        os.close(warm.pipe)  # now it would exit by itself, but only after its imports
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
