"""How fast a training goes and how good it is, as the first engine reports it and a terminal shows it."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from rich.console import Console

from edt_contract.encoding import dump_line
from edt_contract.reports import Fitted, ReportKind, fit
from edt_runner.course import Speed
from edt_runner.engine.link import EngineLink
from edt_runner.engine.telemetry import MetricSums, Telemetry
from edt_runner.launch.progress_bar import TrainingProgress
from edt_runner.protocol.channel import decode
from edt_runner.protocol.data import MetricItem
from edt_runner.protocol.messages import Message, Metrics, Progress, TrainingReport
from edt_runner.schedule import Schedule, Step, StepKind

SCHEDULE = Schedule(train_samples=96, test_samples=96, micro_batches=2, batch_size=16, epochs=10)
"""Three steps of 32 samples, then three steps of validation, ten times."""


class Sent:
    """An engine's connection, which keeps what is sent on it."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.reports: list[TrainingReport] = []
        self.order: list[str] = []

    def send(self, message: Message) -> None:
        self.order.append(message.report if isinstance(message, TrainingReport) else message.kind)
        match message:
            case Progress():
                self.progress.append(message)
            case TrainingReport():
                self.reports.append(message)
            case _:
                assert isinstance(message, Metrics)

    @property
    def rates(self) -> list[float]:
        return [round(each.samples_per_second or 0.0, 6) for each in self.progress]


def values(sums: Sequence[float]) -> dict[str, float]:
    return {"loss": 0.5}


def committed(telemetry: Telemetry, step: Step, **others: Any) -> None:
    telemetry.committed(SCHEDULE, step, MetricSums(1), 32, 2, **{"leads": True, **others})


@pytest.mark.parametrize("validation_seconds", [0.01, 5.0])
def test_a_validation_however_long_does_not_show_in_the_samples_per_second_of_training(
    validation_seconds: float,
) -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    for number in range(SCHEDULE.length):
        step = SCHEDULE.at(number)
        now += 0.2 if step.kind is StepKind.TRAIN else validation_seconds
        committed(telemetry, step)
    telemetry.flush()
    assert set(sent.rates) == {160.0}


def test_hooks_after_a_step_and_files_before_the_next_one_do_not_show_in_the_samples_per_second() -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    for number in range(SCHEDULE.length):
        step = SCHEDULE.at(number)
        telemetry.begin_step()
        now += 0.2
        telemetry.end_step()
        now += 7.0 if step.ends_epoch else 0.0  # a hook
        committed(telemetry, step)
        now += 11.0 if step.ends_epoch else 0.0  # a checkpoint
    telemetry.flush()
    assert set(sent.rates) == {160.0}


def test_a_step_that_was_begun_twice_counts_its_second_try_alone() -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    telemetry.begin_step()
    now = 50.0  # an engine died, and the step is done again
    telemetry.begin_step()
    now = 50.8
    committed(telemetry, SCHEDULE.at(0))
    assert sent.rates == [40.0]


def test_the_rate_is_that_of_the_last_seconds_and_of_the_present_number_of_engines() -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    training = Schedule(train_samples=32_000, test_samples=0, micro_batches=2, batch_size=16, epochs=1)
    for number, (seconds, workers) in enumerate([(0.5, 1)] * 8 + [(1.0, 1)] * 4 + [(0.25, 2)] * 3):
        now += seconds
        telemetry.committed(training, training.at(number), MetricSums(1), 32, workers, leads=True)
    assert sent.rates[7] == 64.0, "steps of half a second"
    assert sent.rates[11] == 32.0, "of two seconds alone, in which all steps took a second"
    assert sent.rates[-1] == 128.0, "of two engines alone"


def test_the_reports_of_progress_together_tell_how_many_samples_took_how_long() -> None:
    sent, now = Sent(), 0.0
    telemetry = Telemetry(cast(EngineLink, sent), values, clock=lambda: now)
    for number in range(SCHEDULE.length):
        step = SCHEDULE.at(number)
        now += 0.2 if step.kind is StepKind.TRAIN else 3.0
        committed(telemetry, step)
    telemetry.flush()
    assert sum(each.samples or 0 for each in sent.progress) == 32 * SCHEDULE.steps
    assert sum(each.seconds or 0.0 for each in sent.progress) == pytest.approx(0.2 * SCHEDULE.steps)


def test_each_validation_is_reported_once_by_the_first_engine_behind_the_progress_before_it() -> None:
    first, other, now = Sent(), Sent(), 0.0
    engines = [Telemetry(cast(EngineLink, sent), values, clock=lambda: now) for sent in (first, other)]
    for number in range(6):  # an epoch
        step = SCHEDULE.at(number)
        now += 0.1 if step.kind is StepKind.TRAIN else 2.0
        for engine, leads in zip(engines, (True, False), strict=True):
            committed(engine, step, leads=leads)
    body = {"step": 3, "epoch": 1, "workers": 2, "samples": 96, "seconds": pytest.approx(6.0), "metrics": {"loss": 0.5}}
    assert first.reports == [TrainingReport("validated", body)]
    assert [kind for kind in first.order if kind != "metrics"] == ["progress", "validated"]
    assert fit(ReportKind.VALIDATED, first.reports[0].body).faults == ()
    assert other.order == []


def test_the_newest_validation_and_the_best_model_whose_files_are_there_are_reported_again() -> None:
    """By a new first engine the validation, and the best model if it has written it, too."""
    first, second, now = Sent(), Sent(), 0.0
    engines = [Telemetry(cast(EngineLink, sent), values, clock=lambda: now) for sent in (first, second)]
    best = {"metric": "val_loss", "mode": "min", "value": 0.5, "epoch": 1, "file": "model_best"}
    for number in range(8):
        now += 0.1
        for engine, leads in zip(engines, (True, False), strict=True):
            committed(engine, SCHEDULE.at(number), leads=leads)
    assert [each.report for each in first.reports] == ["validated"]
    engines[0].best_kept(SCHEDULE.at(5), best)
    assert [each.report for each in first.reports] == ["validated", "best-kept"]
    assert first.reports[1].body == {"step": 3, **best}
    assert fit(ReportKind.BEST_KEPT, first.reports[1].body) == Fitted({"step": 3, **best})
    engines[1].lead()
    assert second.reports == first.reports[:1]
    engines[0].lead()
    assert first.reports == 2 * first.reports[:2]


def test_a_metric_that_is_not_a_number_travels_as_null() -> None:
    sent = Sent()
    telemetry = Telemetry(cast(EngineLink, sent), lambda sums: {"loss": math.nan, "r2": -math.inf, "mae": 1.0})
    for number in range(6):
        committed(telemetry, SCHEDULE.at(number))
    telemetry.flush()
    messages = [decode(dump_line(message)) for message in (*sent.progress, *sent.reports)]
    assert messages
    for message in messages:
        assert isinstance(message, Progress | TrainingReport)
        found = message.body["metrics"] if isinstance(message, TrainingReport) else message.metrics
        assert found == {"loss": None, "r2": None, "mae": 1.0}


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
    shown = TrainingProgress(Speed(SCHEDULE))
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
