"""What a storm came to, in one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from checker.violation import Invariant


@dataclass
class Counts:
    """Everything that is counted. ``wrong`` holds the sentences."""

    database: str
    seed: int
    blows: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    finished: int = 0
    stopped: int = 0
    lost: int = 0
    twice: int = 0
    samples_lost: int = 0
    samples_repeated: int = 0
    attempts: int = 0
    polls: int = 0
    violations: Counter[Invariant] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.wrong and not self.violations

    def __str__(self) -> str:
        blows = ", ".join(f"{number} {kind}" for kind, number in sorted(self.blows.items())) or "none"
        broken = ", ".join(f"{number} {invariant.name}" for invariant, number in self.violations.items())
        return (
            f"{self.database}, seed {self.seed}: {self.blows.total()} blows ({blows}); "
            f"{self.submitted} jobs, {self.finished} finished, {self.stopped} stopped, {self.attempts} attempts; "
            f"{self.lost} lost, {self.twice} run twice, "
            f"{self.samples_lost} samples lost, {self.samples_repeated} repeated, "
            f"{self.violations.total()} violations{f' ({broken})' if broken else ''} in {self.polls} looks"
        )
