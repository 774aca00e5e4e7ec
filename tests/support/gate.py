"""A training that takes only as many steps as it is let: tests then do not depend on the machine's speed.

The user script gives ``Gate.from_environment()`` as worker logger; every engine stops after a step until the test
has opened the gate further. The test side opens it a step at a time while it waits for something to happen. What needs
no step but time (a warm-up, a process that goes) is waited for with the gate as it is: ``waiting.until``. What needs
both (engines that come and go) takes a step only where an engine says that it needs one: ``until(…, sparing=True)``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edt_runner import context

OPEN = 10**9
_LOOK_SECONDS, _MOST_LOOKS = 0.01, 100
_REST_SECONDS, _MOST_REST_SECONDS = 0.02, 0.5
_RESTS_FOR = 2.0
"""So many times as long as the last step took is waited for what may come of it, before the next is let through."""
_LINE = "edt-link"
"""The thread of an engine's line to the coordinator."""
_SPARED_SECONDS = 5.0
"""So long nothing is let through that no engine asks for."""


class Gate:
    """The engine's side: a worker logger that blocks."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._allowed = 0
        self._lines: list[Any] = []
        """Of this process's engine to the coordinator."""

    @classmethod
    def from_environment(cls) -> Gate | Pace | None:
        """TEST_GATE: a path; or TEST_PACE: seconds."""
        path, pace = os.environ.get("TEST_GATE"), os.environ.get("TEST_PACE")
        return cls(path) if path else Pace(float(pace)) if pace else None

    def on_train_begin(self) -> None:
        """This engine has warmed up and is about to ask to be let in."""
        self._lines = [thread._target.__self__ for thread in threading.enumerate() if thread.name == _LINE]
        role = context.current()
        if role is not None:
            self._path.with_suffix(f".ready-{role.name}").touch()

    def on_train_end(self) -> None: ...

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        while iteration >= self._allowed:
            self._allowed = int(self._path.read_text() or 0)
            if iteration >= self._allowed:
                self._path.with_suffix(".workers").write_text(str(workers))
                self._path.with_suffix(".reached").write_text(str(iteration))
                for line in self._lines:
                    if line._committed > line._current or line.regroup_started:
                        self._path.with_suffix(f".wanted-{line.name}").write_text(str(iteration))
                time.sleep(0.002)

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...


class Pace:
    """For trainings that nobody lets through: a rest after each step, so that they last without working."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def on_train_begin(self) -> None: ...

    def on_train_end(self) -> None: ...

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        time.sleep(self._seconds)

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...


class GateKeeper:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allowed = 0
        for left in self.path.parent.glob(f"{self.path.name}.*"):  # by the attempt before this one
            left.unlink()
        self.allow(1)

    def allow(self, steps: int) -> None:
        """Let the training come to ``steps`` committed steps and no further."""
        self.allowed = steps
        draft = self.path.with_suffix(".new")
        draft.write_text(str(steps))
        draft.replace(self.path)

    def open(self) -> None:
        self.allow(OPEN)

    def close(self, seconds: float = 60.0) -> None:
        """Wait until the training stands at the gate."""
        deadline = time.monotonic() + seconds
        while self.reached() < self.allowed:
            if time.monotonic() > deadline:
                raise AssertionError("the training did not come to the gate")
            time.sleep(0.005)

    def until(self, happened: Callable[[], bool], seconds: float = 60.0, *, sparing: bool = False) -> None:
        """Let a step through every now and then until ``happened``. The slower they are the fewer: what happens between
        steps (a group is built, a death is noticed) is as slow, and a training has only so many. ``sparing``: only as
        engines need them to come to a switch or to a round, however long the rest takes."""
        deadline = time.monotonic() + seconds
        opened = stood = 0.0
        while not happened():
            now = time.monotonic()
            if now > deadline:
                raise AssertionError("it did not happen in time")
            if self.reached() >= self.allowed:
                stood = stood or now
                rest = self._spared() if sparing else _rest(stood - opened) if opened else 0.0
                if now >= stood + rest:
                    self.allow(self.allowed + 1)
                    opened, stood = now, 0.0
            time.sleep(_LOOK_SECONDS)

    def reached(self) -> int:
        """The step after which the training stands, or stood last."""
        return self._number(".reached")

    def workers(self) -> int:
        """How many engines made the step after which the training stands."""
        return self._number(".workers")

    def is_asked_for(self) -> bool:
        """Whether an engine has said that with the next step it comes to a switch or to a round."""
        return self._spared() < _SPARED_SECONDS

    def _spared(self) -> float:
        """How long the training stands: until all engines, or some for a while, have said that they come to a switch or
        to a round with the next step."""
        reached, paths = self.reached(), self.path.parent.glob(f"{self.path.name}.wanted-*")
        wanted = sum(path.read_text() == str(reached) for path in paths)
        if not wanted:
            return _SPARED_SECONDS
        return 0.0 if wanted >= self.workers() else _MOST_REST_SECONDS

    def _number(self, suffix: str) -> int:
        path = self.path.with_suffix(suffix)
        for _ in range(_MOST_LOOKS if path.exists() else 0):
            if text := path.read_text():  # else it is just being written
                return int(text)
        return 0

    def is_ready(self, engine: int) -> bool:
        """Whether an engine has warmed up. What it then needs to join is steps, not time."""
        return self.path.with_suffix(f".ready-{engine}").exists()


def _rest(step_seconds: float) -> float:
    return min(max(_REST_SECONDS, _RESTS_FOR * step_seconds), _MOST_REST_SECONDS)
