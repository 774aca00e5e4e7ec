"""How fast a training goes, as the first engine reports it and a terminal shows it, whatever else takes its time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import cast

import pytest
from rich.console import Console

from edt_runner.engine.link import EngineLink
from edt_runner.engine.telemetry import MetricSums, Telemetry
from edt_runner.launch.train import TrainingProgress
from edt_runner.protocol.data import MetricItem
from edt_runner.protocol.messages import Message, Metrics, Progress
from edt_runner.schedule import Schedule, StepKind

SCHEDULE = Schedule(train_samples=96, test_samples=96, micro_batches=2, batch_size=16, epochs=10)
"""Three steps of 32 samples, then three steps of validation, ten times."""


class Sent:
    """An engine's connection, which keeps the rates that are sent on it."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def send(self, message: Message) -> None:
        match message:
            case Progress(samples_per_second=rate):
                assert rate is not None
                self.rates.append(round(rate, 6))
            case _:
                assert isinstance(message, Metrics)


def values(sums: Sequence[float]) -> dict[str, float]:
    return {"loss": 0.5}


@pytest.mark.parametrize("validation_seconds", [0.01, 5.0])
def test_a_validation_however_long_does_not_show_in_the_samples_per_second_of_training(
    validation_seconds: float,
) -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    for number in range(SCHEDULE.length):
        step = SCHEDULE.at(number)
        now += 0.2 if step.kind is StepKind.TRAIN else validation_seconds
        telemetry.committed(SCHEDULE, step, MetricSums(1), 32, 2, leads=True)
    telemetry.flush()
    assert set(sent.rates) == {160.0}


def test_who_leads_from_now_on_counts_from_now_on() -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    now = 100.0
    telemetry.lead()
    now = 100.8
    telemetry.committed(SCHEDULE, SCHEDULE.at(0), MetricSums(1), 32, 2, leads=True)
    assert sent.rates == [40.0]


@pytest.mark.parametrize("validation_seconds", [0.01, 5.0])
def test_the_local_bar_shows_no_rate_before_it_has_one_and_then_that_of_training_alone(
    validation_seconds: float,
) -> None:
    shown = TrainingProgress(SCHEDULE)
    shown._console = Console(file=io.StringIO(), force_terminal=True)
    rates, now = list[str](), 1000.0
    with shown:
        assert shown._bar is not None
        for number in range(SCHEDULE.length):
            step = SCHEDULE.at(number)
            now += 0.2 if step.kind is StepKind.TRAIN else validation_seconds
            metrics = {"loss": 0.5}
            shown.observe(MetricItem(step.kind.value, step.training_steps_after, 0, 1, 2, metrics, now), metrics)
            rates.append(shown._bar.tasks[0].fields["rate"])
    assert set(rates) == {"starting", "160 samples/s"}
    assert rates == sorted(rates, reverse=True), "first the one, then the other"
