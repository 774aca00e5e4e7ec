"""Trainings that live beside each other and compute in turn, so that what disturbs a machine disturbs all alike.

Each process of a training holds a ``Turn``: it notes the time of each step, and after every so many steps hands the
notes over and blocks until it is its turn again. ``Turns`` is the other end, one for each training. All processes of a
training take the same steps, so all stand still after the same one; the first step of a turn, in which they wake up,
is where its clock begins.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

VARIABLE = "EDT_BENCH_TURNS"
_START_SECONDS = 180.0


class Turn:
    """In a process of a training; the first call of ``step`` that hands over connects it.

    Args:
        length: steps of a turn.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._times: list[float] = []
        self._lines: IO[str] | None = None

    def step(self, number: int, *, whole: bool = True) -> None:
        """Step ``number`` (from 1 on) is done. ``whole``: all processes take part by now; until then nobody waits."""
        self._times.append(time.monotonic())
        if number % self._length or not whole:
            return
        if self._lines is None:
            line = socket.socket(socket.AF_UNIX)
            line.connect(os.environ[VARIABLE])
            self._lines = line.makefile("rw")
        told = {"pid": os.getpid(), "times": self._times[-self._length :]}
        print(json.dumps(told), file=self._lines, flush=True)
        self._times.clear()
        if not self._lines.readline():
            os._exit(0)  # whoever measures is gone


class Turns:
    """The other end, for all processes of one training."""

    def __init__(self, name: str, folder: Path, processes: int) -> None:
        self.name, self.processes = name, processes
        self.pids: list[int] = []
        """Of those that compute."""
        self._door = socket.socket(socket.AF_UNIX)
        self._path = folder / "turns"
        self._door.bind(str(self._path))
        self._door.listen(processes)
        self._lines: list[IO[str]] = []

    @property
    def environ(self) -> dict[str, str]:
        """By which its processes find here."""
        return {VARIABLE: str(self._path)}

    def wait_for_all(self, alive: Callable[[], bool], why: Callable[[], str]) -> None:
        """Until all processes have come to the end of their first turn, in which they warm up. ``why``: what to say
        of a training that is no longer ``alive``."""
        self._door.settimeout(1.0)
        deadline = time.monotonic() + _START_SECONDS
        while len(self._lines) < self.processes:
            try:
                self._lines.append(self._door.accept()[0].makefile("rw"))
            except TimeoutError:
                if not alive() or time.monotonic() > deadline:
                    sys.exit(f"{self.name} does not train:\n{why()}")
        self._hear()

    def take(self) -> float:
        """Let them go on for one turn; returns seconds a step."""
        for lines in self._lines:
            print(file=lines, flush=True)
        return self._hear()

    def _hear(self) -> float:
        told: list[dict[str, Any]] = []
        for lines in self._lines:
            text = lines.readline()
            if not text:
                sys.exit(f"{self.name}: a process has ended")
            told.append(json.loads(text))
        self.pids = [each["pid"] for each in told]
        return statistics.fmean((each["times"][-1] - each["times"][0]) / (len(each["times"]) - 1) for each in told)

    def close(self) -> None:
        for lines in self._lines:
            lines.close()
        self._door.close()
