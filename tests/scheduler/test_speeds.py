"""What is measured of a job's steps, what of it is written, and which jobs count as alike."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import text

from edt_contract.reports import ReportKind
from edt_scheduler.decide.snapshot import present
from edt_scheduler.model.jobs import JobSpec
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.speeds import (
    WARM_UP_STEPS,
    Measured,
    News,
    mixed,
    of_model,
    prior_key,
    with_report,
)
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def measured(reports: list[tuple[float, dict[str, Any]]], fence: int = 1) -> list[News]:
    """What is to be written after each of these reports, given with their times."""
    known, found = None, []
    for time, report in reports:
        known, news = with_report(known, report, fence, time)
        found += [news] if news is not None else []
    return found


def steady(seconds: float, *, workers: int = 2, steps: int = 10, count: int = 100, begin: int = 0) -> list[Any]:
    """Reports every half second of ``steps`` steps that take ``seconds`` each."""
    return [
        (number / 2, {"step": begin + number * steps, "workers": workers, "seconds": seconds * steps})
        for number in range(count)
    ]


def test_the_first_steps_at_a_size_are_not_measured() -> None:
    slow, fast = steady(9.0, count=1 + WARM_UP_STEPS // 10), steady(0.5, count=20, begin=WARM_UP_STEPS + 10)
    found = measured([*slow, *fast])
    assert [news.step_seconds for news in found] == [0.5]
    assert found[0].steps == 10


def test_steps_that_take_minutes_count_after_some_seconds() -> None:
    reports = [(60.0 * number, {"step": number, "workers": 1, "seconds": 60.0}) for number in range(4)]
    assert [news.step_seconds for news in measured(reports)] == [60.0]


def test_a_new_size_is_measured_anew_and_what_does_not_change_is_written_once() -> None:
    found = measured([*steady(0.5, count=40), *steady(0.3, workers=4, begin=400, count=40)])
    assert [(news.workers, news.step_seconds) for news in found] == [(2, 0.5), (4, 0.3)]


def test_noise_of_some_percent_is_seldom_written_and_a_real_change_is() -> None:
    dice = random.Random(1)
    reports = [
        (number / 2, {"step": number * 5, "workers": 1, "seconds": 5 * dice.gauss(0.1, 0.01)}) for number in range(2000)
    ]
    found = measured(reports)
    assert len(found) < 20
    assert found[-1].step_seconds == pytest.approx(0.1, rel=0.06)
    slower = [(1000 + at, {**report, "step": report["step"] + 10_000}) for at, report in steady(0.2, workers=1)]
    assert measured([*reports, *slower])[-1].step_seconds == pytest.approx(0.2, rel=0.06)


@pytest.mark.parametrize(
    "odd",
    [
        {"step": None, "workers": 2, "seconds": 1.0},
        {"step": 500, "workers": None, "seconds": 1.0},
        {"step": 500, "workers": 2, "seconds": None},
        {"step": 500, "workers": 2**31, "seconds": 1.0},
        {"step": 500, "workers": 2, "seconds": 0.0},
        {"step": 3, "workers": 2, "seconds": 1.0},
    ],
)
def test_a_report_that_says_too_little_or_goes_back_changes_no_mean(odd: dict[str, Any]) -> None:
    before = None
    for time, report in steady(0.5, count=8):
        before, _ = with_report(before, report, 1, time)
    after, news = with_report(before, odd, 1, 4.0)
    assert news is None
    assert after is not None
    assert before is not None
    assert after.get("mean") in (before["mean"], None)


def test_a_mean_follows_the_newest_steps() -> None:
    mean, samples = 1.0, 10_000
    for _ in range(30):
        mean = mixed(mean, samples, 2.0, 20)
    assert 1.9 < mean < 2.0


def test_points_of_one_model_count_or_else_those_of_the_model_with_most_steps() -> None:
    a, b = Measured("a100", 1, 1, 0.2, 100), Measured("h100", 1, 1, 0.1, 50)
    assert of_model([a, b], "h100") == (b,)
    assert of_model([a, b], "v100") == (a,)
    assert of_model([a, b], None) == (a,)
    assert of_model([a], "h100") == (a,)


def test_jobs_are_alike_whatever_their_learning_rate_and_unlike_with_another_batch_script_or_owner() -> None:
    def key(*arguments: str, owner: int = 1, script: bytes = b"train()", **changes: Any) -> str:
        spec = JobSpec("edtPyTorch", "main.py", "", "app", arguments=arguments, **changes)
        return prior_key(owner, spec, script)

    same = key("--batch-size", "32", "--lr", "0.1", "--epochs=3")
    assert key("--batch-size", "32", "--lr", "0.2", "--epochs=9", "--seed", "-4") == same
    assert key("--batch-size", "64", "--lr", "0.1", "--epochs=3") != same
    assert key("--batch-size", "32", owner=2) != same
    assert key("--batch-size", "32", script=b"other()") != same
    assert key("--batch-size", "32", num_worker=7) == same


def _trains(node: Puppet, stage: Stage, job: str, seconds: float, workers: int, reports: int = 12) -> None:
    """The job's first engine reports progress twice a second."""
    at = stage.job(job).progress.get("step", 0)
    for number in range(1, reports + 1):
        stage.clock.pass_(0.5)
        node.report((job, 1), ReportKind.PROGRESS, step=at + 10 * number, workers=workers, seconds=10 * seconds)


def _points(stage: Stage, job: str) -> dict[tuple[int, int], tuple[float, float]]:
    found = next(each for each in present(stage.platform).state.jobs if each.id == job)
    return {(point.workers, point.nodes): (point.seconds, point.weight) for point in found.points}


def test_reports_become_points_of_the_job_and_of_those_that_are_alike(stage: Stage) -> None:
    node = stage.node(slots=4, offers=tuple(SlotSpec(str(n), f"GPU-{n}", model="NVIDIA H100") for n in range(4)))
    job = stage.submit(4)
    stage.settle()
    _trains(node, stage, job, 0.25, 4)
    assert _points(stage, job) == {(4, 1): (0.25, 1.0)}
    alike, unlike = stage.submit(4), stage.submit(4, arguments=("--batch-size", "9"))
    stage.settle()
    assert _points(stage, alike) == {(4, 1): (0.25, 0.5)}
    assert _points(stage, unlike) == {}
    with stage.platform.database.snapshot() as tx:
        rows = tx.execute(text("SELECT model, workers, nodes FROM speed_points")).all()
        assert [tuple(row) for row in rows] == [("nvidia h100", 4, 1)]
    assert "measuring" not in stage.job(job).progress


def test_a_steady_training_writes_its_points_once(stage: Stage) -> None:
    node = stage.node(slots=2)
    job = stage.submit(2)
    stage.settle()

    def written() -> list[float]:
        with stage.platform.database.snapshot() as tx:
            return [
                row.at for row in tx.execute(text("SELECT at FROM speed_points UNION ALL SELECT at FROM prior_points"))
            ]

    _trains(node, stage, job, 0.1, 2)
    first = written()
    assert len(first) == 2
    _trains(node, stage, job, 0.101, 2, reports=40)
    assert written() == first


def test_a_change_of_membership_begins_a_new_measurement(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    node = stage.node(slots=2)
    job = stage.submit(2)
    stage.settle()
    _trains(node, stage, job, 0.1, 2)
    node.report((job, 1), ReportKind.RESIZED, workers=2, joined=[], left=[], generation=3, step=121, pause_seconds=0.5)
    _trains(node, stage, job, 9.0, 2, reports=2)
    assert _points(stage, job) == {(2, 1): (0.1, 1.0)}, "the first steps of a membership are not measured"
