"""What the processes of a training write down in ``resize_pause``, and the figures that are made of it.

Each process appends lines to a file of its own:

    ["step", time, step, workers, first, samples]  it has committed the step, which is made of this many samples from
                                                   position ``first`` of the data's order on; time.monotonic()
    ["from", time, step]                           it begins with the state after this step: later steps that anybody
                                                   has committed until now are lost, and come again
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

VARIABLE = "EDT_BENCH_NOTES"
"""The folder of the files."""
_LATE_SECONDS = 10.0


class Notes:
    """The writing side, in a process of a training."""

    def __init__(self) -> None:
        self._file = (Path(os.environ[VARIABLE]) / f"notes-{os.getpid()}").open("a", buffering=1)

    def step(self, step: int, workers: int, first: int, samples: int) -> None:
        print(json.dumps(["step", time.monotonic(), step, workers, first, samples]), file=self._file)

    def begins_after(self, step: int) -> None:
        print(json.dumps(["from", time.monotonic(), step]), file=self._file)


@dataclass
class Commit:
    """A step that was committed: as the first of its processes says it."""

    time: float
    step: int
    workers: int
    first: int
    samples: int
    lost_at: float = math.inf
    """When a process began with an older state."""


@dataclass
class Reader:
    """Reads the files of all processes of a training, each line once."""

    folder: Path
    _offsets: dict[Path, int] = field(default_factory=dict)
    _begins: list[tuple[float, int]] = field(default_factory=list)
    _steps: list[tuple[float, int, int, int, int, int]] = field(default_factory=list)
    """Time, step, workers, first, samples, process."""

    def read(self) -> None:
        for path in self.folder.glob("notes-*"):
            with path.open("rb") as file:
                self._take(path, file)

    def _take(self, path: Path, file: IO[bytes]) -> None:
        pid, offset = _pid(path), self._offsets.get(path, 0)
        file.seek(offset)
        whole = file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        for line in whole.splitlines():
            kind, *values = json.loads(line)
            if kind == "from":
                self._begins.append((values[0], values[1]))
            else:
                moment, step, workers, first, samples = values
                self._steps.append((moment, step, workers, first, samples, pid))

    def first_step(self, since: float, workers: int, *, restarted: bool) -> float | None:
        """When the first step after a time was committed that so many workers made; None: none was. ``restarted``: by
        processes that have begun after it."""
        if restarted:
            begun = [moment for moment, _ in self._begins if moment > since]
            if not begun:
                return None
            since = min(begun)
        return min((each[0] for each in self._since(since) if each[2] == workers), default=None)

    def first_own(self, since: float, workers: int, processes: Collection[int]) -> float:
        """The same by another process than these: it has a share in that step."""
        return min(
            each[0] for each in self._steps if each[0] > since and each[2] == workers and each[5] not in processes
        )

    def number_since(self, moment: float) -> int:
        """Steps that were committed after a moment."""
        return len({each[1] for each in self._since(moment)})

    def _since(self, moment: float) -> Iterator[tuple[float, int, int, int, int, int]]:
        """Those after a time. Lines that were read one after the other are in order within ``_LATE_SECONDS``."""
        for each in reversed(self._steps):
            if each[0] > moment:
                yield each
            elif each[0] < moment - _LATE_SECONDS:
                return

    def processes(self) -> list[int]:
        """Those that have committed a step and live."""
        pids = [_pid(path) for path in self.folder.glob("notes-*") if path.stat().st_size]
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def commits(self) -> list[Commit]:
        """All commits, in order of time; each step once for each beginning that it came after."""
        begins = sorted(self._begins)
        found: dict[tuple[int, int], Commit] = {}
        for values in sorted(self._steps):
            life = sum(moment < values[0] for moment, _ in begins)
            found.setdefault((life, values[1]), Commit(*values[:5]))
        for commit in found.values():
            later = [moment for moment, step in begins if moment > commit.time and step < commit.step]
            commit.lost_at = min(later, default=math.inf)
        return sorted(found.values(), key=lambda commit: commit.time)


def _pid(path: Path) -> int:
    return int(path.name.partition("-")[2])


@dataclass(frozen=True)
class Account:
    """Samples of some steps that a training skipped for good, and those that it was trained with once more."""

    lost: int
    repeated: int


def account(commits: Sequence[Commit], since: float, until: float) -> Account:
    """By positions in the data's order, of the steps committed between two times, and of those lost between them."""
    kept = [commit for commit in commits if commit.lost_at == math.inf]
    here = [commit for commit in kept if since <= commit.time < until]
    lost = sum(max(0, later.first - commit.first - commit.samples) for commit, later in itertools.pairwise(here))
    again = sum(max(0, commit.first + commit.samples - later.first) for commit, later in itertools.pairwise(here))
    voided = sum(commit.samples for commit in commits if since <= commit.lost_at < until)
    return Account(lost, again + voided)
