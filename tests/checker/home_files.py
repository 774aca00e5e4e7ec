"""The files of a home that say who each supervisor is, and what it has reported.

``jobs/<exec id>/spool/<fence>-<node>/attempt.json``   pid, starttime, job, fence, node of a supervisor
``jobs/<exec id>/spool/<fence>-<node>/reports.jsonl``  its reports, a line each, the number is the line's
``agent/<node>/attempts/*.json``                       an agent's records: the same, with the supervisor's EDT_LIFE
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from checker.machine import Process


class Attempt(NamedTuple):
    """A job and the number of one of its lives."""

    job: str
    fence: int

    @property
    def number(self) -> int:
        """The job's row."""
        return int(self.job.rpartition("-")[2])

    def __str__(self) -> str:
        return f"{self.job}/{self.fence}"


@dataclass
class Register:
    """Which EDT_LIFE belongs to which attempt. What was once learned stays known when the papers are gone."""

    home: Path
    attempt_of: dict[str, Attempt] = field(default_factory=dict)

    def learn(self, living: Sequence[Process]) -> None:
        for path in there(self.home, "agent/*/attempts/*.json"):
            paper = _json(path)
            if paper and paper.get("life"):
                self.attempt_of[paper["life"]] = Attempt(paper["job"], paper["fence"])
        supervisors = {process.identity: process for process in living}
        for path in there(self.home, "jobs/*/spool/*/attempt.json"):
            paper = _json(path)
            known = supervisors.get((paper["pid"], paper["starttime"])) if paper else None
            if paper and known is not None and known.life:
                self.attempt_of[known.life] = Attempt(paper["job"], paper["fence"])


@dataclass
class Reports:
    """The spooled reports of a home, each read once."""

    home: Path
    lines: dict[tuple[Attempt, str], int] = field(default_factory=dict)
    """How many reports a node's supervisors of an attempt have written; of a job that was deleted nobody can say."""
    engine_of: dict[int, tuple[Attempt, int]] = field(default_factory=dict)
    """Allocation to its attempt and the pid of its engine."""
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self) -> None:
        """Take in what was written since the last time."""
        paths = there(self.home, "jobs/*/spool/*/reports.jsonl")
        self._forget(self._offsets.keys() - set(paths))
        for path in paths:
            attempt, node = _whose(path)
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets.get(path, 0))
                    data = file.read()
            except FileNotFoundError:  # its job was deleted
                self._forget({path} & self._offsets.keys())
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.splitlines():
                self.lines[attempt, node] = self.lines.get((attempt, node), 0) + 1
                self._take(attempt, line)

    def _forget(self, gone: Iterable[Path]) -> None:
        for path in gone:
            del self._offsets[path]
            self.lines.pop(_whose(path), None)

    def _take(self, attempt: Attempt, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(line)
            if report["kind"] == "engine-started":
                self.engine_of[int(report["body"]["allocation"])] = attempt, int(report["body"]["pid"])


def there(folder: Path, pattern: str) -> list[Path]:
    """What is there below ``folder``. What goes while it is looked at, since its job was deleted, is not."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # glob minds, in some Pythons
            return list(folder.glob(pattern))


def _whose(reports: Path) -> tuple[Attempt, str]:
    """The attempt and the node that a ``reports.jsonl`` is of."""
    fence, _, node = reports.parent.name.partition("-")
    return Attempt(reports.parents[2].name, int(fence)), node


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
