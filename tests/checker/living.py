"""The rules on what lives: of each job one attempt, of an attempt that is over nothing, on a free slot nobody."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from checker.database import Picture
from checker.home_files import Attempt, Register, Reports
from checker.machine import Process, lives
from checker.violation import Invariant, Violation

ORPHAN_SECONDS = 30.0
FENCED_SECONDS = 5.0
"""What is left of an attempt on a node that is lost reads its fence once a second and ends itself: so long it may
stand beside its successor. Fenced, it can write nothing that counts."""

KINDS = 3
"""Of warm supervisors: PyTorch's, TensorFlow's, and that with Keras 2."""


@dataclass
class Census:
    """Compares what lives with what the database, read before, says should."""

    register: Register
    reports: Reports
    _lost: dict[str, float] = field(default_factory=dict)
    """Node to when it was last seen lost, on this machine's monotonic clock."""

    def judge(self, picture: Picture, living: Sequence[Process]) -> Iterator[Violation]:
        self.register.learn(living)
        self._lost |= {row["name"]: time.monotonic() for row in picture["nodes"] if row["lost_at"] is not None}
        of: dict[Attempt, list[Process]] = defaultdict(list)
        strangers: dict[tuple[str, str], list[Process]] = defaultdict(list)
        for process in living:
            attempt = self.register.attempt_of.get(process.life)
            if attempt is not None:
                of[attempt].append(process)
            elif process.life:
                strangers[process.node, process.life].append(process)
        yield from self._two_attempts(of)
        yield from _orphans(picture, of)
        yield from _strangers(strangers, living)
        yield from self._squatters(picture, of)

    def _two_attempts(self, of: dict[Attempt, list[Process]]) -> Iterator[Violation]:
        newest: dict[str, int] = {}
        for attempt in of:
            newest[attempt.job] = max(attempt.fence, newest.get(attempt.job, 0))
        for attempt, processes in of.items():
            successor = Attempt(attempt.job, newest[attempt.job])
            if attempt == successor:
                continue
            # /proc was not read in one instant: both must live now.
            old, new = ([p for p in found if lives(*p.identity)] for found in (processes, of[successor]))
            if old and new:
                text = f"{_names(old)} of {attempt} live beside {_names(new)} of {successor}"
                fenced = all(time.monotonic() - self._lost.get(p.node, -1e9) < 2 * FENCED_SECONDS for p in old)
                yield Violation(Invariant.I4, attempt, text, FENCED_SECONDS if fenced else 0.0)

    def _squatters(self, picture: Picture, of: dict[Attempt, list[Process]]) -> Iterator[Violation]:
        for row in picture["allocations"]:
            known = self.reports.engine_of.get(row["id"])
            if row["released_at"] is None or known is None:
                continue
            attempt, pid = known
            job = picture.jobs.get(row["job_id"])
            gang = job is not None and job["gang"] is not None
            for process in of.get(attempt, ()):
                if process.pid == pid and (gang or process.name == "edt-engine"):
                    text = f"allocation {row['id']} came back ({row['kind']}), and its {process} of {attempt} lives"
                    yield Violation(Invariant.I1, ("engine", row["id"]), text)


def _orphans(picture: Picture, of: dict[Attempt, list[Process]]) -> Iterator[Violation]:
    for attempt, processes in of.items():
        row = picture.attempt(attempt.number, attempt.fence)
        if row is not None and row["ended_at"] is None:
            continue
        for process in processes:
            text = f"{process} of {attempt} lives, and that attempt is {'over' if row else 'unknown'}"
            yield Violation(Invariant.I7, process.identity, text, ORPHAN_SECONDS)


def _strangers(found: dict[tuple[str, str], list[Process]], living: Sequence[Process]) -> Iterator[Violation]:
    """Each living agent may keep one supervisor of each kind that has no spec yet."""
    agents = {process.pid for process in living if not process.life and "edt_agent" in process.command}
    for (node, life), processes in found.items():
        heads = {process.parent for process in processes}
        if not heads & agents:
            text = f"{_names(processes)} on {node or 'no node'} (life {life[:8]}) belong to no attempt and to no agent"
            yield Violation(Invariant.I7, ("stranger", life), text, ORPHAN_SECONDS)
    for agent in agents:
        kept = [life for (_, life), processes in found.items() if any(p.parent == agent for p in processes)]
        if len(kept) > KINDS:
            text = f"agent {agent} keeps {len(kept)} supervisors that belong to no attempt"
            yield Violation(Invariant.I7, ("warm", agent, *sorted(kept)), text, ORPHAN_SECONDS)


def _names(processes: Sequence[Process]) -> str:
    return ", ".join(map(str, processes[:4])) + (f" and {len(processes) - 4} more" if len(processes) > 4 else "")
