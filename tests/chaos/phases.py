"""Engines that die in every phase of their work, over and over, on 2, 3 and 4 engines: what each gap was, and whether
the bits and the samples are those of an undisturbed training.

Trainings stand alone here, without a platform; each takes many kills, and a new engine takes each dead one's place.
The seed decides the order of the phases; where time is short every phase gets some.
"""

from __future__ import annotations

import itertools
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edt_demo import sample_record as record
from edt_runner.errors import RunnerError
from support.crashes import arm, crashed, crashing, gone, losses
from support.nursery import Nursery
from support.training import Elastic, spec_for
from support.waiting import until

EPOCHS, SAMPLES = 30, 237
STEPS = 10 * EPOCHS
CONV = ("conv", "--workers", 6, "--epochs", EPOCHS, "--recovery", 0.2)
"""E = 6: there is room for an engine more while one joins."""
KILLS_EACH = 50
"""Of a phase and a number of engines; then there is nothing left to try."""
_RUN_OUT = 16
"""Steps that are let through after a kill: a gap is known once eleven steps have followed."""
_STEPS_A_KILL = 45
_PATIENCE = 60.0


@dataclass(frozen=True)
class Phase:
    """Where an engine dies, and what has to go on for that."""

    name: str
    entries: tuple[str, ...]
    change: str = ""
    """``join``, ``leave``: a planned change goes on meanwhile."""
    least: int = 2
    """Engines that it takes."""
    goes: int = 1
    """Engines that are gone afterwards."""


PHASES = (
    Phase("first forward", ("engine.forward",)),
    Phase("backward", ("engine.backward",)),
    Phase("before the reduction", ("engine.before-reduce",)),
    Phase("in the reduction", ("engine.in-reduce",)),
    Phase("before the gather", ("engine.before-gather",)),
    Phase("reduced", ("engine.reduced",)),
    Phase("applied", ("engine.applied",)),
    Phase("committed", ("engine.committed",)),
    Phase("validation", ("engine.validate",)),
    Phase("checkpoint", ("engine.checkpoint",)),
    Phase("receiving", ("engine.join",), "join"),
    Phase("joining", ("engine.joined",), "join"),
    Phase("at the switch", ("engine.switch",), "join"),
    Phase("after the switch", ("engine.switched",), "join"),
    Phase("beside a leaver", ("engine.switched",), "leave", least=3, goes=2),
    Phase("leaving", ("engine.leave",), "leave"),
    Phase("finding together", ("engine.in-reduce", "engine.regroup"), least=3, goes=2),
)
ALL_ENTRIES = (*dict.fromkeys(entry for phase in PHASES for entry in phase.entries), "engine.hand-over")


@dataclass
class Counts:
    """What came of it, in one line. ``wrong`` holds the sentences."""

    seed: int
    kills: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By phase and number of engines."""
    gaps: list[float] = field(default_factory=list)
    """Seconds."""
    trainings: int = 0
    samples_lost: int = 0
    samples_repeated: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        phases = Counter[str]()
        for (phase, _), number in self.kills.items():
            phases[phase] += number
        kills = ", ".join(f"{number} {phase}" for phase, number in phases.items()) or "none"
        gaps = "no gap was measured"
        if len(self.gaps) > 1:
            p95 = statistics.quantiles(self.gaps, n=20)[-1]
            gaps = f"gap {1e3 * statistics.median(self.gaps):.0f} ms median, {1e3 * p95:.0f} ms p95 of {len(self.gaps)}"
        return (
            f"phases, seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.trainings} trainings; {gaps}; "
            f"{self.samples_lost} samples lost, {self.samples_repeated} repeated, {len(self.wrong)} wrong"
        )


def run(seconds: float, seed: int, report: Callable[[str], None]) -> Counts:
    """Kill for so long; ``say`` hears a line about how it goes. The training under way is brought to its end."""
    counts, chance, end = Counts(seed), random.Random(seed), time.monotonic() + seconds
    folder = Path(tempfile.mkdtemp(prefix="edt-phases-"))
    nursery = Nursery()
    try:
        with Elastic(spec_for(folder / "undisturbed", *CONV), nursery.start) as training:
            training.settle([1])
            digest = training.finish()["digest"]
        plan = _order(chance)
        for number, engines in enumerate(itertools.cycle((2, 3, 4))):
            if time.monotonic() >= end or all(
                counts.kills[phase.name, size] >= KILLS_EACH for phase in PHASES for size in range(phase.least, 5)
            ):
                return counts
            _training(folder / str(number), nursery, engines, plan, digest, end, counts, report)
    finally:
        nursery.close()
        if counts.sound:
            shutil.rmtree(folder)
    raise AssertionError("unreachable")


def _order(chance: random.Random) -> Iterator[Phase]:
    """All phases in a random order, again and again."""
    while True:
        yield from chance.sample(PHASES, len(PHASES))


def _training(
    folder: Path,
    nursery: Nursery,
    engines: int,
    plan: Iterator[Phase],
    digest: str,
    end: float,
    counts: Counts,
    report: Callable[[str], None],
) -> None:
    environ = crashing(folder, *ALL_ENTRIES, armed=False)
    what = f"training {folder.name} on {engines} engines"
    with Elastic(spec_for(folder, *CONV, environ=environ), nursery.start) as training:
        try:
            job = _Job(training, engines)
            while training.gate.allowed + _STEPS_A_KILL < STEPS and time.monotonic() < end:
                phase = next(plan)
                if phase.least > engines:
                    continue
                what = f"training {folder.name} on {engines} engines, {phase.name}"
                job.strike(phase)
                counts.kills[phase.name, engines] += 1
                report(f"{counts.kills.total()} kills in phases, {len(counts.wrong)} wrong")
            arm(training, "engine.hand-over")
            found = training.finish(_PATIENCE)
            counts.kills["handing over", engines] += 1
            counts.trainings += 1
            counts.gaps += [loss.pause for loss in losses(training) if loss.pause is not None]
            if (found["kind"], found["digest"]) != ("finished", digest):
                counts.wrong.append(f"{what}: {found}; see {folder}")
            for audit in record.audit(record.read(training.sample_record), SAMPLES, EPOCHS):
                counts.samples_lost += len(audit.lost)
                counts.samples_repeated += len(audit.repeated)
                if audit.lost or audit.repeated:
                    counts.wrong.append(f"{what}: {audit}; see {folder}")
        except (AssertionError, RunnerError) as error:
            counts.wrong.append(f"{what}: {error}; see {folder}")


class _Job:
    """A training, and its engines by number."""

    def __init__(self, training: Elastic, engines: int) -> None:
        self._training, self._wanted = training, engines
        self._newest = 0
        self._engines: set[int] = set()
        self._fill()

    def strike(self, phase: Phase) -> None:
        """Let an engine die in ``phase``, see its gap, and give the training another one."""
        training = self._training
        before, known = len(gone(training)), len(losses(training))
        arm(training, *phase.entries)
        if phase.change:
            if phase.change == "leave":
                self._engines.remove(min(self._engines))
            self._engines.add(self._new())
            training.hold(self._engines)
            until(lambda: training.gate.is_ready(self._newest), _PATIENCE, f"{self._newest} is ready")
        training.gate.allow(training.gate.allowed + _RUN_OUT)
        training.gate.until(lambda: crashed(training) and len(gone(training)) >= before + phase.goes, _PATIENCE)
        if not phase.change:
            deadline = time.monotonic() + 5.0
            while len(losses(training)) == known and time.monotonic() < deadline:
                time.sleep(0.01)
        self._fill()

    def _fill(self) -> None:
        training = self._training
        self._engines -= set(gone(training))
        while len(self._engines) > self._wanted:
            self._engines.remove(min(self._engines))
        while len(self._engines) < self._wanted:
            self._engines.add(self._new())
        training.settle(self._engines, _PATIENCE)

    def _new(self) -> int:
        self._newest += 1
        return self._newest
