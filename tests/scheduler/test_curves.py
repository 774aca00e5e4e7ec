"""A training's course: the points that are kept, those that stand, those that are shown; its pace, and what is left."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.errors import NoSuchJob
from edt_scheduler.model.jobs import job_number
from edt_scheduler.model.progress import (
    MOST_METRICS,
    Curve,
    MetricPoint,
    downsampled,
    early_end,
    eta_seconds,
    final_points,
    mean_rate,
    share_done,
    with_report,
)
from edt_scheduler.model.states import JobState, Role
from edt_scheduler.operations import accounts, execs, history
from edt_scheduler.periodic.retention import remove_folders
from edt_scheduler.store import metrics
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def point(step: int, loss: float | None = 1.0) -> MetricPoint:
    return MetricPoint(step, float(step), 1, 1, loss, 10.0, {})


def progress(node: Puppet, job: str, step: int, *, fence: int = 1, **body: object) -> None:
    fields = {"steps_total": 100, "epoch": 1, "epochs": 2, "workers": 1, "loss": 1 / (step + 1), **body}
    node.report((job, fence), ReportKind.PROGRESS, step=step, **fields)


def curve(stage: Stage, job: str, points: int = 600) -> Curve:
    return history.curve(stage.platform, job, viewer=stage.admin, points=points)


def points_of(stage: Stage, job: str) -> int:
    """Points that are stored of a job, deleted or not."""
    number = job_number(job)
    assert number is not None
    with stage.platform.database.snapshot() as tx:
        return len(metrics.of_job(tx, number))


@pytest.fixture
def training(stage: Stage) -> tuple[Stage, Puppet, str]:
    """A job that trains on one node."""
    node, job = stage.node(slots=1), stage.submit(1)
    stage.settle()
    return stage, node, job


class TestKept:
    def test_each_report_is_a_point_with_what_it_told(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        progress(node, job, 3, samples_per_second=250, metrics={"loss": 0.25, "accuracy": 0.5})
        stage.clock.pass_(1)
        progress(node, job, 7, loss=None)
        shown = curve(stage, job)
        now = stage.clock.now
        assert shown == Curve(
            (
                MetricPoint(3, now - 1, 1, 1, 0.25, 250.0, {"loss": 0.25, "accuracy": 0.5}),
                MetricPoint(7, now, 1, 1, None, None, {}),
            ),
            2,
        )

    @pytest.mark.parametrize(
        "odd",
        [{"step": "three"}, {"step": None}, {"step": 2**40}, {"step": True}],
    )
    def test_a_report_without_a_step_is_none(self, training: tuple[Stage, Puppet, str], odd: dict[str, object]) -> None:
        stage, node, job = training
        node.report((job, 1), ReportKind.PROGRESS, **odd)
        assert curve(stage, job).total == 0

    def test_odd_words_for_numbers_are_left_out_and_the_rest_is_kept(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        progress(node, job, 1, loss="low", workers="many", metrics={"a": "b", "c": 1})
        progress(node, job, 2, metrics=[1])
        first, second = curve(stage, job).points
        assert (first.loss, first.workers, first.metrics) == (None, None, {"a": None, "c": 1.0})
        assert second.metrics == {}

    def test_a_script_that_names_a_metric_after_each_step_has_a_bounded_number_of_curves(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for step in range(4):
            progress(
                node, job, step, metrics={f"loss of step {step} part {part}": 1.0 for part in range(MOST_METRICS * 2)}
            )
        points = curve(stage, job).points
        assert len(points[0].metrics) == MOST_METRICS
        assert len({name for point in points for name in point.metrics}) == MOST_METRICS

    def test_a_long_training_keeps_a_bounded_number_and_always_the_first_and_the_newest(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics, "MOST", 8)
        job = job_number(stage.submit())
        assert job is not None
        with stage.platform.database.transaction() as tx:
            for number in range(100):
                metrics.add(tx, job, 1, float(number), {"step": number})
                steps = [row.step for row in metrics.of_job(tx, job)]
                assert len(steps) <= 8 + 1
                assert steps[0] == 0 and steps[-1] == number
                gaps = {later - earlier for earlier, later in pairwise(steps[:-1])}
                assert len(gaps) <= 1, "evenly spread, but for the newest"

    def test_it_goes_with_a_job_that_is_removed_and_with_no_other(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        progress(node, job, 1)
        execs.delete(stage.platform, job, viewer=stage.admin)
        remove_folders(stage.platform)
        assert points_of(stage, job) == 1, "it still runs"
        node.obey()
        other = stage.submit(1)
        stage.settle()
        progress(node, other, 1)
        remove_folders(stage.platform)
        assert (points_of(stage, job), points_of(stage, other)) == (0, 1)

    def test_others_see_nothing_of_it(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, _, job = training
        bob = accounts.add_user(stage.platform, "bob", "hash", Role.USER)
        with pytest.raises(NoSuchJob):
            history.curve(stage.platform, job, viewer=bob, points=10)


class TestFinalPoints:
    def test_what_was_done_beyond_the_checkpoint_is_shown_as_it_was_done_again(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for step in (10, 20, 30):
            progress(node, job, step, loss=1.0)
        node.end((job, 1), ExitKind.LOST)
        stage.clock.pass_(60)
        stage.settle()
        for step in (15, 25):
            progress(node, job, step, fence=2, loss=2.0)
        shown = curve(stage, job)
        assert [(each.step, each.loss) for each in shown.points] == [(10, 1.0), (15, 2.0), (25, 2.0)]
        assert shown.total == 3

    def test_a_step_that_is_told_twice_counts_as_told_last(self) -> None:
        assert final_points([point(1, 5.0), point(1, 6.0)]) == [point(1, 6.0)]


class TestThinned:
    def test_few_points_are_all_shown(self) -> None:
        points = [point(step) for step in range(10)]
        assert downsampled(points, 10) == points

    def test_many_are_as_few_as_asked_for_with_the_first_the_last_and_every_spike(self) -> None:
        losses = [1.0] * 5000
        losses[1234], losses[4321] = 9.0, -9.0
        points = [point(step, loss) for step, loss in enumerate(losses)]
        shown = downsampled(points, 100)
        assert len(shown) <= 100
        assert shown[0] == points[0] and shown[-1] == points[-1]
        assert points[1234] in shown and points[4321] in shown
        assert [each.step for each in shown] == sorted({each.step for each in shown})

    @pytest.mark.parametrize("most", [1, 4, 7, 600])
    def test_a_curve_without_a_loss_keeps_its_ends(self, most: int) -> None:
        points = [point(step, None) for step in range(1000)]
        shown = downsampled(points, most)
        assert len(shown) <= max(4, most)
        assert (shown[0], shown[-1]) == (points[0], points[-1])

    def test_nothing_stays_nothing(self) -> None:
        assert downsampled([], 100) == []


class TestPace:
    def test_what_is_left_follows_from_the_steps_of_late(self, training: tuple[Stage, Puppet, str]) -> None:
        stage, node, job = training
        assert stage.job(job).eta_seconds is None
        progress(node, job, 10)
        assert stage.job(job).eta_seconds is None, "one report says nothing of speed"
        stage.clock.pass_(5)
        progress(node, job, 20)
        assert stage.job(job).eta_seconds == pytest.approx(40)
        assert stage.job(job).progress["step"] == 20 and "pace" not in stage.job(job).progress
        node.end((job, 1), ExitKind.FINISHED)
        assert stage.job(job).eta_seconds is None

    def test_one_slow_report_moves_the_mean_a_little(self) -> None:
        pace = with_report(None, {"step": 0, "workers": 1}, 1, 0.0)
        for second in range(1, 61):
            pace = with_report(pace, {"step": 10 * second, "workers": 1}, 1, float(second))
        slow = with_report(pace, {"step": 601, "workers": 1}, 1, 61.0)
        assert 9.5 < slow["steps_per_second"] < 10

    @pytest.mark.parametrize(
        ("body", "fence", "time"),
        [
            ({"step": 20, "workers": 2}, 1, 2.0),
            ({"step": 20, "workers": 1}, 2, 2.0),
            ({"step": 5, "workers": 1}, 1, 2.0),
            ({"step": 20, "workers": 1}, 1, 1.0),
        ],
        ids=["another size", "another attempt", "back to a checkpoint", "a clock that stood still"],
    )
    def test_it_begins_anew_with(self, body: dict[str, int], fence: int, time: float) -> None:
        before = with_report(with_report(None, {"step": 0, "workers": 1}, 1, 0.0), {"step": 10, "workers": 1}, 1, 1.0)
        assert before["steps_per_second"] == 10
        assert with_report(before, body, fence, time)["steps_per_second"] is None

    def test_a_training_that_stands_still_has_no_end_in_sight(self) -> None:
        pace = {"steps_per_second": 0.0, "step": 5}
        assert eta_seconds(pace, 10) is None
        assert eta_seconds({"steps_per_second": 2.0, "step": 12}, 10) == 0
        assert eta_seconds({"steps_per_second": 2.0, "step": 2}, None) is None
        assert eta_seconds({"steps_per_second": 1e-307, "step": 2}, 10_000) is None

    def test_a_report_without_a_step_changes_nothing(self) -> None:
        before = with_report(None, {"step": 1, "workers": 1}, 1, 0.0)
        assert with_report(before, {"loss": 1.0}, 1, 1.0) == before


class TestHowFarAndHowFast:
    @pytest.mark.parametrize(
        ("progress", "finished", "share"),
        [
            ({"step": 46, "steps_total": 69}, True, 46 / 69),  # it ended early
            ({"step": 46, "steps_total": 69}, False, 46 / 69),
            ({"step": 69, "steps_total": 69}, True, 1.0),
            ({}, True, 1.0),  # a script that told of no training
            ({}, False, None),
            ({"step": None, "steps_total": 69}, False, None),
        ],
    )
    def test_what_a_job_has_done_is_a_share_of_its_steps(
        self, progress: dict[str, object], finished: bool, share: float | None
    ) -> None:
        assert share_done(progress, None, finished=finished) == share

    @pytest.mark.parametrize(
        ("progress", "epochs", "words"),
        [
            ({"step": 46, "steps_total": 69, "epoch": 2, "epochs": 3}, None, "ended early at epoch 2 of 3"),
            ({"step": 46, "steps_total": 69, "epoch": 2}, 3, "ended early at epoch 2 of 3"),
            ({"step": 46, "steps_total": 69}, None, "ended early at step 46 of 69"),
            ({"step": 69, "steps_total": 69, "epoch": 3, "epochs": 3}, 3, None),
            ({}, None, None),
        ],
    )
    def test_a_finished_job_whose_training_ended_early_says_where(
        self, progress: dict[str, object], epochs: int | None, words: str | None
    ) -> None:
        assert early_end(progress, None, epochs, finished=True) == words
        assert early_end(progress, None, epochs, finished=False) is None

    def test_a_job_shows_the_mean_over_its_training_steps_of_all_attempts_and_not_its_last_moment(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        assert stage.job(job).mean_samples_per_second is None
        progress(node, job, 10, samples_per_second=100.0, samples=300, seconds=3.0)
        node.end((job, 1), ExitKind.LOST)
        stage.clock.pass_(60)
        stage.settle()
        progress(node, job, 20, fence=2, samples_per_second=30.0, samples=300, seconds=10.0)
        progress(node, job, 30, fence=2, samples_per_second=3.0, samples=50, seconds=0.0)
        assert stage.job(job).progress["samples_per_second"] == 3.0
        assert stage.job(job).mean_samples_per_second == 50.0
        node.end((job, 2), ExitKind.FINISHED)
        assert stage.job(job).progress["samples_per_second"] == 50.0
        assert stage.job(job).mean_samples_per_second == 50.0

    @pytest.mark.parametrize(
        "odd",
        [{"samples": 2**53 - 1, "seconds": 5e-324}, {"samples_per_second": 1.7e308}],
        ids=["steps that took no time", "rates that have no median"],
    )
    def test_a_job_whose_engines_report_what_has_no_finite_mean_ends_without_one(
        self, training: tuple[Stage, Puppet, str], odd: dict[str, float]
    ) -> None:
        stage, node, job = training
        for step in (10, 20):
            progress(node, job, step, **odd)
        node.end((job, 1), ExitKind.FINISHED)
        ended = stage.job(job)
        assert (ended.state, ended.mean_samples_per_second) == (JobState.FINISHED, None)
        json.dumps(ended.progress, allow_nan=False)

    @pytest.mark.parametrize(("samples", "seconds"), [(1, 5e-324), (2**53 - 1, 1e-300), (0, 1.0), (1, 0.0)])
    def test_a_mean_is_finite_or_unknown(self, samples: int, seconds: float) -> None:
        assert mean_rate(samples, seconds) is None

    def test_a_failed_job_tells_the_step_at_which_it_failed_and_not_that_of_its_last_report(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        progress(node, job, 40)
        node.end((job, 1), ExitKind.SCRIPT_ERROR, failed_step=46)
        assert stage.job(job).progress["step"] == 46
        assert stage.job(job).share_done == 0.46

    def test_an_attempt_that_fails_before_it_reports_progress_is_where_it_failed_and_not_where_the_one_before_was(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        progress(node, job, 40)
        node.end((job, 1), ExitKind.LOST)
        stage.clock.pass_(60)
        stage.settle()
        node.end((job, 2), ExitKind.SCRIPT_ERROR, failed_step=33)
        assert stage.job(job).progress["step"] == 33

    def test_a_finished_job_of_engines_that_did_not_tell_how_long_steps_took_shows_its_median_rate(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for step, rate in enumerate([90.0, 100.0, 110.0, 100.0, 3.0]):
            progress(node, job, step, samples_per_second=rate)
        assert stage.job(job).progress["samples_per_second"] == 3.0
        node.end((job, 1), ExitKind.FINISHED)
        assert stage.job(job).progress["samples_per_second"] == 100.0
        assert curve(stage, job).points[-1].samples_per_second == 3.0

    def test_a_job_that_is_stopped_between_two_attempts_tells_its_median_rate_too(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        for step, rate in enumerate([90.0, 100.0, None, 100.0, 3.0]):
            progress(node, job, step, samples_per_second=rate)
        node.end((job, 1), ExitKind.LOST)
        execs.stop(stage.platform, job, viewer=stage.admin)
        assert stage.job(job).state is JobState.KILLED
        assert stage.job(job).progress["samples_per_second"] == 95.0

    def test_the_last_step_is_known_though_the_reports_of_progress_were_given_up(
        self, training: tuple[Stage, Puppet, str]
    ) -> None:
        stage, node, job = training
        progress(node, job, 40)
        node.end((job, 1), ExitKind.FINISHED, step=100)
        assert stage.job(job).progress["step"] == 100
        assert stage.job(job).share_done == 1.0
