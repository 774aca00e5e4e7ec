"""Validations of a training: what is stored of them, the best values, and what a list shows of a job."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.model.jobs import job_number
from edt_scheduler.model.progress import MOST_METRICS, Curve, MetricPoint
from edt_scheduler.model.validation import best_of, main_metric, with_point
from edt_scheduler.operations import execs, history
from edt_scheduler.periodic.retention import remove_folders, thin_old_metrics
from edt_scheduler.store import metrics
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def point(epoch: int, **values: float | None) -> MetricPoint:
    return MetricPoint(10 * epoch, float(epoch), epoch, 1, values.get("val_loss"), None, values)


def validate(node: Puppet, job: str, epoch: int, *, fence: int = 1, **values: float | None) -> None:
    body = {"step": 10 * epoch, "epoch": epoch, "workers": 2, "samples": 96, "seconds": 0.5, "metrics": values}
    node.report((job, fence), ReportKind.VALIDATED, **body)


def curve(stage: Stage, job: str, points: int = 600) -> Curve:
    return history.curve(stage.platform, job, viewer=stage.admin, points=points)


def stored(stage: Stage, job: str) -> int:
    number = job_number(job)
    assert number is not None
    with stage.platform.database.snapshot() as tx:
        return len(metrics.validations_of(tx, number))


@pytest.fixture
def training(stage: Stage) -> tuple[Stage, Puppet, str]:
    """A job that trains on one node."""
    node, job = stage.node(slots=1), stage.submit(1)
    stage.settle()
    return stage, node, job


class TestReported:
    def test_each_validation_is_a_point_and_its_metrics_have_names_of_their_own(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        node.report((job, 1), ReportKind.PROGRESS, step=10, loss=0.9, metrics={"loss": 0.9, "accuracy": 0.6})
        validate(node, job, 1, loss=0.75, accuracy=0.7)
        validate(node, job, 2, loss=0.5, accuracy=0.8)
        shown, now = curve(stage, job), stage.clock.now
        assert shown.validations == (
            MetricPoint(10, now, 1, 2, 0.75, None, {"val_loss": 0.75, "val_accuracy": 0.7}),
            MetricPoint(20, now, 2, 2, 0.5, None, {"val_loss": 0.5, "val_accuracy": 0.8}),
        )
        assert (shown.total, shown.validations_total) == (1, 2)
        assert shown.points[0].metrics == {"loss": 0.9, "accuracy": 0.6}
        view = stage.job(job)
        assert view.validation is not None
        assert view.validation == {
            "step": 20, "epoch": 2, "time": now, "workers": 2, "samples": 96, "seconds": 0.5,
            "metrics": {"val_loss": 0.5, "val_accuracy": 0.8},
        }  # fmt: skip
        assert view.progress["metrics"] == {"loss": 0.9, "accuracy": 0.6}

    def test_a_value_that_is_not_a_number_is_kept_as_unknown_and_is_never_the_best(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        validate(node, job, 1, loss=0.75)
        validate(node, job, 2, loss=math.nan, r2=-math.inf)
        assert [each.metrics for each in curve(stage, job).validations] == [
            {"val_loss": 0.75},
            {"val_loss": None, "val_r2": None},
        ]
        assert stage.job(job).best == {"val_loss": {"value": 0.75, "epoch": 1, "step": 10}}

    @pytest.mark.parametrize("body", [{"step": 3}, {"metrics": {"loss": 1.0}}, {"step": "three", "metrics": {}}])
    def test_a_report_without_step_or_metrics_is_none(
        self, training: tuple[Stage, Puppet, str], body: dict[str, Any]
    ) -> None:
        stage, node, job = training
        node.report((job, 1), ReportKind.VALIDATED, **body)
        assert (stage.job(job).validation, stored(stage, job)) == (None, 0)

    def test_a_late_report_of_an_attempt_that_is_over_changes_nothing(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        node.report((job, 1), ReportKind.ATTEMPT_ENDED, kind="lost", whole=True)
        validate(node, job, 1, loss=0.75)
        assert stage.job(job).validation is None

    def test_the_model_that_is_kept_as_the_best_is_known(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        best = {
            "metric": "val_accuracy",
            "mode": "max",
            "value": 0.98,
            "epoch": 7,
            "step": 70,
            "file": "model_best.pth",
        }
        node.report((job, 1), ReportKind.BEST_KEPT, **best)
        assert stage.job(job).best_model == best


class TestBest:
    def test_a_loss_is_best_when_small_and_an_accuracy_when_large_with_its_epoch_and_step(self) -> None:
        points = [point(1, val_loss=0.5, val_accuracy=0.7), point(2, val_loss=0.4, val_accuracy=0.9)]
        assert best_of([*points, point(3, val_loss=0.6, val_accuracy=0.8)]) == {
            "val_loss": {"value": 0.4, "epoch": 2, "step": 20},
            "val_accuracy": {"value": 0.9, "epoch": 2, "step": 20},
        }

    def test_of_equal_values_the_earlier_one_stays(self) -> None:
        assert best_of([point(1, val_loss=0.5), point(2, val_loss=0.5)])["val_loss"]["epoch"] == 1

    def test_a_script_that_names_a_metric_after_each_epoch_has_a_bounded_number_of_best_values(self) -> None:
        best = best_of(point(epoch, **{f"val_of_epoch_{epoch}": 1.0}) for epoch in range(3 * MOST_METRICS))
        assert len(best) == MOST_METRICS
        better = with_point(best, point(999, val_of_epoch_3=0.5))
        assert better["val_of_epoch_3"]["value"] == 0.5

    def test_what_was_validated_beyond_the_checkpoint_is_forgotten_as_it_is_done_again(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for epoch, loss in ((1, 0.9), (2, 0.1), (3, 0.8)):
            validate(node, job, epoch, loss=loss)
        assert stage.job(job).best["val_loss"]["epoch"] == 2
        node.end((job, 1), ExitKind.LOST)
        stage.clock.pass_(60)
        stage.settle()
        validate(node, job, 2, fence=2, loss=0.7)
        assert [(each.epoch, each.loss) for each in curve(stage, job).validations] == [(1, 0.9), (2, 0.7)]
        assert stage.job(job).best == {"val_loss": {"value": 0.7, "epoch": 2, "step": 20}}

    def test_a_validation_that_a_new_first_engine_reports_again_counts_once(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for _ in range(3):
            validate(node, job, 1, loss=0.5)
        assert stored(stage, job) == 1 and curve(stage, job).validations_total == 1
        assert stage.job(job).best == {"val_loss": {"value": 0.5, "epoch": 1, "step": 10}}

    @pytest.mark.parametrize(("epoch", "fence"), [(60, 1), (60, 2), (50, 2)])
    def test_it_is_known_though_its_point_was_left_out_since_and_a_validation_is_done_again(
        self, training: tuple[Stage, Puppet, str], monkeypatch: pytest.MonkeyPatch, epoch: int, fence: int
    ) -> None:
        monkeypatch.setattr(metrics, "MOST", 8)
        stage, node, job = training
        for each in range(1, 61):
            validate(node, job, each, loss=0.1 if each == 23 else 1.0, error=1.0 / each)
        assert 23 not in [each.epoch for each in curve(stage, job).validations]
        if fence == 2:
            node.end((job, 1), ExitKind.LOST)
            stage.clock.pass_(60)
            stage.settle()
        validate(node, job, epoch, fence=fence, loss=0.9, error=1.0 / epoch)
        assert stage.job(job).best == {
            "val_loss": {"value": 0.1, "epoch": 23, "step": 230},
            "val_error": {"value": 1.0 / epoch, "epoch": epoch, "step": 10 * epoch},
        }


class TestKept:
    def test_a_long_training_keeps_a_bounded_number_and_always_the_newest(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics, "MOST", 8)
        number = job_number(stage.submit())
        assert number is not None
        with stage.platform.database.transaction() as tx:
            for epoch in range(100):
                metrics.add_validation(tx, number, 1, point(epoch, val_loss=1.0))
                steps = [row.step for row in metrics.validations_of(tx, number)]
                assert len(steps) <= 8 + 1
                assert steps[0] == 0 and steps[-1] == 10 * epoch

    def test_an_answer_has_as_few_as_asked_for_with_the_best(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        for epoch in range(1, 41):
            validate(node, job, epoch, loss=0.1 if epoch == 23 else 1.0)
        shown = curve(stage, job, points=8)
        assert len(shown.validations) <= 8 and shown.validations_total == 40
        assert {1, 23, 40} <= {each.epoch for each in shown.validations}

    def test_they_are_thinned_and_removed_with_the_rest_of_the_curve(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        for epoch in range(1, 61):
            validate(node, job, epoch, loss=1 / epoch)
        node.end((job, 1), ExitKind.FINISHED)
        stage.clock.pass_(31 * 86_400)
        few = stage.platform.settings.model_copy(update={"metrics_points": 20})
        assert thin_old_metrics(replace(stage.platform, settings=few)) == 1
        assert stored(stage, job) <= 20
        assert stage.job(job).best == {"val_loss": {"value": 1 / 60, "epoch": 60, "step": 600}}
        execs.delete(stage.platform, job, viewer=stage.admin)
        remove_folders(stage.platform)
        assert stored(stage, job) == 0


class TestMain:
    @pytest.mark.parametrize(
        ("validated", "progress", "shown"),
        [
            ({"val_loss": 0.5, "val_accuracy": 0.9}, {"loss": 0.4}, ("val_accuracy", 0.9)),
            ({"val_loss": 0.5}, {"loss": 0.4}, ("val_loss", 0.5)),
            ({"val_loss": None}, {"loss": 0.4}, ("val_loss", None)),
            ({}, {"loss": 0.4}, ("loss", 0.4)),
            (None, {"loss": 0.4, "metrics": {"accuracy": 0.9}}, ("loss", 0.4)),
            (None, {}, None),
        ],
    )
    def test_it_is_a_validations_first_metric_else_its_loss_else_the_loss_of_the_training(
        self, validated: dict[str, float] | None, progress: dict[str, Any], shown: tuple[str, float] | None
    ) -> None:
        assert main_metric(None if validated is None else {"metrics": validated}, progress) == shown
