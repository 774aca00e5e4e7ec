"""How fast a training goes, as the first engine reports it and a terminal shows it, whatever else takes its time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import pytest
from rich.console import Console

from edt_runner.engine.link import Link
from edt_runner.engine.schedule import Schedule, TickKind
from edt_runner.engine.tally import Tally
from edt_runner.engine.telemetry import Telemetry
from edt_runner.progress import TrainingProgress

SCHEDULE = Schedule(train_samples=96, test_samples=96, logical_workers=2, batch_size=16, epochs=10)
"""Three steps of 32 samples, then three ticks of validation, ten times."""


class Told:
    """An engine's line, which keeps the rates that are reported on it."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def report(self, report: str, **body: Any) -> None:
        assert report == "progress"
        self.rates.append(round(body["samples_per_second"], 6))

    def tell(self, kind: str, **body: Any) -> None:
        assert kind == "metrics"


def values(sums: Sequence[float]) -> dict[str, float]:
    return {"loss": 0.5}


@pytest.mark.parametrize("validation_seconds", [0.01, 5.0])
def test_a_validation_however_long_does_not_show_in_the_samples_per_second_of_training(
    validation_seconds: float,
) -> None:
    told, now = Told(), 0.0
    telemetry = Telemetry(cast(Link, told), values, clock=lambda: now)
    for number in range(SCHEDULE.ticks):
        tick = SCHEDULE.at(number)
        now += 0.2 if tick.kind is TickKind.TRAIN else validation_seconds
        telemetry.committed(SCHEDULE, tick, Tally(1), 32, 2, leads=True)
    telemetry.flush()
    assert set(told.rates) == {160.0}


def test_who_leads_from_now_on_counts_from_now_on() -> None:
    told, now = Told(), 0.0
    telemetry = Telemetry(cast(Link, told), values, clock=lambda: now)
    now = 100.0
    telemetry.lead()
    now = 100.8
    telemetry.committed(SCHEDULE, SCHEDULE.at(0), Tally(1), 32, 2, leads=True)
    assert told.rates == [40.0]


@pytest.mark.parametrize("validation_seconds", [0.01, 5.0])
def test_the_local_bar_shows_no_rate_before_it_has_one_and_then_that_of_training_alone(
    validation_seconds: float,
) -> None:
    shown = TrainingProgress(SCHEDULE)
    shown._console = Console(file=io.StringIO(), force_terminal=True)
    rates, now = list[str](), 1000.0
    with shown:
        assert shown._bar is not None
        for number in range(SCHEDULE.ticks):
            tick = SCHEDULE.at(number)
            now += 0.2 if tick.kind is TickKind.TRAIN else validation_seconds
            item = {"phase": tick.kind.value, "step": tick.steps, "epoch": 1, "workers": 2, "time": now}
            shown.observe({**item, "metrics": {"loss": 0.5}})
            rates.append(shown._bar.tasks[0].fields["rate"])
    assert set(rates) == {"starting", "160 samples/s"}
    assert rates == sorted(rates, reverse=True), "first the one, then the other"
