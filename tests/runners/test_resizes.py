"""What is told of resizes: each once it is measured, by the first engine, or by the one that becomes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from edt_runner.engine.link import Link
from edt_runner.engine.resizes import Resizes

LONG_ENOUGH = 11
"""Steps after which a pause is known."""


class Told:
    """An engine's line, which keeps what is reported on it."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.pauses: list[float | None] = []

    def report(self, report: str, **body: Any) -> None:
        assert report == "resized"
        self.generations.append(body["generation"])
        self.pauses.append(body["pause_seconds"])


class Measuring:
    """An engine that takes a step every tenth of a second, the first after a resize half a second."""

    def __init__(self, *, leads: bool) -> None:
        self.told, self.tick, self.leads = Told(), 0, leads
        self._time = 0.0
        self.resizes = Resizes(cast(Link, self.told), clock=lambda: self._time)
        self.step()

    def step(self, seconds: float = 0.1) -> None:
        self._time += seconds
        self.tick += 1
        self.resizes.committed(self.tick, leads=self.leads)

    def resize(self, generation: int, steps: int) -> None:
        self.resizes.begin({"generation": generation}, self.tick, leads=self.leads)
        for each in range(steps):
            self.step(0.1 if each else 0.5)


def engines() -> Iterator[Measuring]:
    yield Measuring(leads=True)
    yield Measuring(leads=False)


def test_all_measure_and_the_first_tells() -> None:
    first, other = engines()
    for engine in (first, other):
        engine.resize(2, LONG_ENOUGH)
    assert first.told.generations == [2] and round(first.told.pauses[0] or 0, 6) == 0.4
    assert other.told.generations == []


def test_what_the_first_died_over_is_told_by_the_next() -> None:
    _, other = engines()
    other.resize(2, LONG_ENOUGH - 3)
    other.leads = True
    other.resizes.begin({"generation": 3}, other.tick, leads=True)
    other.resizes.lead(other.tick)
    assert set(other.told.generations) == {2} and round(other.told.pauses[0] or 0, 6) == 0.4


def test_what_became_known_in_the_step_in_which_the_first_died_is_told_by_the_next() -> None:
    _, other = engines()
    other.resize(2, LONG_ENOUGH)
    other.resizes.lead(other.tick)
    assert other.told.generations == [2]


def test_what_the_first_has_surely_told_is_not_told_again() -> None:
    _, other = engines()
    other.resize(2, LONG_ENOUGH + 2)
    other.resizes.lead(other.tick)
    assert other.told.generations == []


def test_at_the_end_is_told_what_is_known() -> None:
    first, _ = engines()
    first.resize(2, 2)
    first.resizes.finish(first.tick, leads=True)
    assert first.told.generations == [2] and first.told.pauses == [None]
