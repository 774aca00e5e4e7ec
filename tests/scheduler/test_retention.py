"""What is over goes when an administrator said so: results, metrics, whole jobs; and what is counted before."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import event, func, insert, select, text

from edt_contract.reports import ExitKind
from edt_scheduler.errors import HomeUnusable, NoSuchJob
from edt_scheduler.model.jobs import job_number
from edt_scheduler.model.progress import indices_to_keep
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import agents, execs, history
from edt_scheduler.periodic.retention import (
    delete_old_jobs,
    purge_deleted,
    remove_folders,
    remove_old_results,
    thin_old_metrics,
)
from edt_scheduler.periodic.rollups import count_user_days, forget_roll_ups, forget_usage
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store import metrics, queries, retention, usage
from edt_scheduler.store.tables import jobs as job_table
from edt_scheduler.store.tables import metadata, outbox, user_days
from edt_scheduler.store.usage import DAY_SECONDS, by_day
from edt_scheduler.views import JobView, SlotUse
from support.puppets import Stage

FAR = (
    *("home", "nodes", "slots", "users", "tokens", "job_transitions", "changes", "idempotency_keys", "user_days"),
    *("queues", "queue_usage", "prior_points", "decisions"),
)
"""Tables whose rows outlive any job."""


def platform_with(stage: Stage, **settings: Any) -> Platform:
    """The same platform, under other settings."""
    return replace(stage.platform, settings=stage.platform.settings.model_copy(update=settings))


def ended(stage: Stage, workers: int = 2) -> str:
    """A job that has run on the first node, for an hour, and finished."""
    job = stage.submit(workers)
    stage.settle()
    stage.clock.pass_(3600)
    stage.puppets[0].end((job, 1), ExitKind.FINISHED)
    stage.settle()
    return job


def rows(stage: Stage) -> dict[str, int]:
    with stage.platform.database.snapshot() as tx:
        return {
            table.name: tx.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }


def row(stage: Stage, job: str) -> Any:
    with stage.platform.database.snapshot() as tx:
        return tx.execute(select(job_table).where(job_table.c.id == job_number(job))).one_or_none()


def days_pass(stage: Stage, days: float) -> None:
    stage.clock.pass_(days * DAY_SECONDS)


class TestSettings:
    def test_nothing_that_is_over_goes_by_itself_but_points_of_curves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = Settings()
        assert (settings.job_days, settings.result_days, settings.metrics_days) == (None, None, 30)
        monkeypatch.setenv("EDT_METRICS_DAYS", "")
        assert Settings().metrics_days is None

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"EDT_JOB_DAYS": "3", "EDT_RESULT_DAYS": "7"}, "results go with their job at the latest"),
            ({"EDT_JOB_DAYS": "0"}, "greater than 0"),
            ({"EDT_DELETED_DAYS": "0.5"}, "greater than or equal to 1"),
            ({"EDT_METRICS_DAYS": "inf"}, "finite"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
    ) -> None:
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ValidationError, match=message) as refused:
            Settings()
        assert f"EDT_{refused.value.errors()[0]['loc'][0]}".upper() == list(given)[-1]


class TestAJobThatWasDeleted:
    def test_it_goes_with_every_row_and_leaves_what_was_counted_of_it(self, stage: Stage) -> None:
        stage.node()
        before = rows(stage)
        job = ended(stage)
        number = job_number(job)
        assert number is not None
        with stage.platform.database.transaction() as tx:
            metrics.add(tx, number, 1, 1.0, {"step": 1})
            resize = tx.execute(text("SELECT min(id) FROM resizes")).scalar_one()
            notification = {"queue": "q", "task": "t", "arguments": [], "resize_id": resize, "created_at": 1.0}
            tx.execute(insert(outbox).values(**notification))
        execs.delete(stage.platform, job, viewer=stage.admin)
        assert remove_folders(stage.platform) == 1
        days_pass(stage, 2)
        assert count_user_days(stage.platform) == 1
        assert purge_deleted(stage.platform) == 1
        stage.platform.notifier.relay()  # what a thread does otherwise, some time
        after = {name: count for name, count in rows(stage).items() if name not in FAR and name != "rolled_up"}
        assert after == {name: before[name] for name in after} | {"outbox": 0}
        assert rows(stage)["user_days"] == 1

    def test_its_number_is_never_given_again(self, stage: Stage) -> None:
        job = stage.submit()
        execs.delete(stage.platform, job, viewer=stage.admin)
        remove_folders(stage.platform)
        days_pass(stage, 2)
        assert purge_deleted(stage.platform) == 1
        assert stage.submit() == "edt-2"

    def test_its_rows_stay_for_a_day_and_a_watcher_is_told_once_that_it_is_gone(self, stage: Stage) -> None:
        job = stage.submit()
        cursor = history.newest_change(stage.platform)
        execs.delete(stage.platform, job, viewer=stage.admin)
        changes = history.changes_since(stage.platform, cursor)
        assert [each.exec_id for each in changes.removed] == [job]
        remove_folders(stage.platform)
        days_pass(stage, 0.99)
        assert purge_deleted(stage.platform) == 0 and row(stage, job) is not None
        days_pass(stage, 0.02)
        assert purge_deleted(stage.platform) == 1
        changes = history.changes_since(stage.platform, changes.cursor)
        assert (changes.jobs, changes.removed) == ((), ())
        late = history.changes_since(stage.platform, cursor)
        assert (late.jobs, late.allocations) == ((), ()), "whoever slept through it fetches no row that is not there"

    def test_it_waits_for_its_folder_for_open_slots_and_for_what_is_still_to_be_counted(self, stage: Stage) -> None:
        node = stage.node()
        job = ended(stage)
        running = stage.submit()
        stage.settle()
        for each in (job, running):
            execs.delete(stage.platform, each, viewer=stage.admin)
        days_pass(stage, 2)
        assert purge_deleted(stage.platform) == 0, "its folder is there"
        assert remove_folders(stage.platform) == 1, "the other one has still to be stopped"
        assert purge_deleted(stage.platform) == 0, "its slots' time was not counted"
        count_user_days(stage.platform)
        assert purge_deleted(stage.platform) == 1 and row(stage, running) is not None
        node.obey()
        assert remove_folders(stage.platform) == 1
        assert purge_deleted(stage.platform) == 0, "what it held until today is counted tomorrow"
        days_pass(stage, 1.5)
        count_user_days(stage.platform)
        assert purge_deleted(stage.platform) == 1

    def test_a_crash_between_folder_and_rows_is_made_good(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        job = stage.submitted()
        execs.delete(stage.platform, job.exec_id, viewer=stage.admin)
        with monkeypatch.context() as dying:
            dying.setattr(retention, "folders_gone", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                remove_folders(stage.platform)
        assert not job.directory.exists()
        days_pass(stage, 2)
        assert purge_deleted(stage.platform) == 0, "nobody has written down yet that the folder is gone"
        assert remove_folders(stage.platform) == 0
        assert purge_deleted(stage.platform) == 1


@contextmanager
def counted_points(stage: Stage) -> Iterator[list[int]]:
    """Of each write transaction in the block, how many points of courses it deleted; at the end without the zeros."""
    engine, counts = stage.platform.database.writing, list[int]()

    def begun(*_: Any) -> None:
        counts.append(0)

    def executed(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM metric_points"):
            counts[-1] += cursor.rowcount

    event.listen(engine, "begin", begun)
    event.listen(engine, "after_cursor_execute", executed)
    try:
        yield counts
    finally:
        event.remove(engine, "begin", begun)
        event.remove(engine, "after_cursor_execute", executed)
        counts[:] = filter(None, counts)


def with_course(stage: Stage, *points: int) -> list[str]:
    """Jobs that were stopped before anything of them ran, each with so many points."""
    found = []
    for count in points:
        job = stage.submit()
        number = job_number(job)
        assert number is not None
        execs.stop(stage.platform, job, viewer=stage.admin)
        with stage.platform.database.transaction() as tx:
            for step in range(count):
                metrics.add(tx, number, 1, 1.0, {"step": step})
        found.append(job)
    return found


class TestPointsOfCourses:
    """A job has thousands. Nobody waits for all of them to go."""

    @pytest.fixture(autouse=True)
    def _few_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.retention.BATCH_ROWS", 10)

    def test_they_go_with_the_folder_some_in_each_transaction(self, stage: Stage) -> None:
        deleted, kept = with_course(stage, 33, 5), with_course(stage, 4)
        for job in deleted:
            execs.delete(stage.platform, job, viewer=stage.admin)
        with counted_points(stage) as counts:
            assert remove_folders(stage.platform) == 2
        assert counts == [10, 10, 10, 8]
        assert rows(stage)["metric_points"] == 4 and stage.job(*kept)

    def test_those_of_a_job_whose_results_were_removed_before_it_was_deleted_go_before_its_rows(
        self, stage: Stage
    ) -> None:
        jobs = with_course(stage, 33, 5)
        days_pass(stage, 8)
        platform = platform_with(stage, result_days=7)
        assert remove_old_results(platform) == 2 and remove_folders(platform) == 2
        assert rows(stage)["metric_points"] == 38, "their courses can still be looked at"
        for job in jobs:
            execs.delete(stage.platform, job, viewer=stage.admin)
        days_pass(stage, 2)
        with counted_points(stage) as counts:
            assert purge_deleted(stage.platform) == 2
        assert counts == [10, 10, 10, 8]
        assert rows(stage)["metric_points"] == rows(stage)["jobs"] == 0

    def test_a_job_waits_for_those_that_are_left(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        long, short = with_course(stage, 33, 5)
        with monkeypatch.context() as no_time:
            no_time.setattr("edt_scheduler.periodic.retention._forget_points", lambda *_: None)
            for job in (long, short, stage.submit()):
                execs.delete(stage.platform, job, viewer=stage.admin)
            remove_folders(stage.platform)
            days_pass(stage, 2)
            assert purge_deleted(stage.platform) == 1, "the one that never had any"
        assert purge_deleted(stage.platform) == 2


class TestFoldersThatCannotBeRemoved:
    @pytest.fixture
    def deleted(self, stage: Stage) -> list[JobView]:
        found = [stage.submitted() for _ in range(4)]
        for job in found:
            execs.delete(stage.platform, job.exec_id, viewer=stage.admin)
        return found

    def test_a_disk_that_answers_with_an_error_has_lost_no_folder(
        self, stage: Stage, deleted: list[JobView], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = os.lstat

        def lstat(path: Any, *given: Any, **named: Any) -> Any:
            if Path(path) == deleted[1].directory:
                raise OSError(errno.ESTALE, "Stale file handle")
            return looks(path, *given, **named)

        with monkeypatch.context() as ill:
            ill.setattr(os, "lstat", lstat)
            ill.setattr(shutil, "rmtree", lambda path, **_: None if path == deleted[1].directory else rmtree(path))
            with pytest.raises(HomeUnusable, match="cannot be removed, edt-2 say"):
                remove_folders(stage.platform)
        assert [row(stage, job.exec_id).folder_gone_at is None for job in deleted] == [False, True, False, False]
        assert remove_folders(stage.platform) == 1 and not deleted[1].directory.exists()

    def test_they_keep_no_others_from_being_removed(
        self, stage: Stage, deleted: list[JobView], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each run has time for one folder, and nothing can be removed of the first two."""
        stuck = {job.directory for job in deleted[:2]}
        monkeypatch.setattr(shutil, "rmtree", lambda path, **_: None if path in stuck else rmtree(path))
        monkeypatch.setattr("edt_scheduler.periodic.retention.in_time", lambda rows: islice(rows, 1))
        for _ in deleted:
            with suppress(HomeUnusable):
                remove_folders(stage.platform)
        assert [job.directory.exists() for job in deleted] == [True, True, False, False]
        stuck.clear()
        assert remove_folders(stage.platform) + remove_folders(stage.platform) == 2, "it begins anew with the first"


class TestAJobThatIsOld:
    def test_it_is_deleted_when_it_has_been_over_for_long_enough_and_no_other_is(self, stage: Stage) -> None:
        stage.node()
        old = ended(stage)
        days_pass(stage, 6)
        young = ended(stage)
        waiting = stage.submit(40)
        days_pass(stage, 2)
        assert delete_old_jobs(stage.platform) == 0, "by default they are kept for ever"
        assert delete_old_jobs(platform_with(stage, job_days=7)) == 1
        assert delete_old_jobs(platform_with(stage, job_days=7)) == 0
        with pytest.raises(NoSuchJob):
            stage.job(old)
        assert stage.job(young).state is JobState.FINISHED and stage.job(waiting).exec_id == waiting

    def test_its_results_may_go_before_it_and_it_says_so(self, stage: Stage) -> None:
        stage.node()
        job = ended(stage)
        (stage.job(job).model_dir / "weights").write_text("w")
        days_pass(stage, 8)
        assert remove_old_results(stage.platform) == 0
        platform = platform_with(stage, result_days=7)
        assert remove_old_results(platform) == 1 and remove_old_results(platform) == 0
        assert stage.job(job).directory.exists() and stage.job(job).results_removed_at == stage.clock.now
        assert remove_folders(platform) == 1
        view = stage.job(job)
        assert not view.directory.exists() and view.results_days == 7
        newest = history.events(stage.platform, job, viewer=stage.admin)[-1]
        assert newest.kind == "results-removed" and "after 7 days, as the administrator set" in newest.message
        execs.delete(stage.platform, job, viewer=stage.admin)
        days_pass(stage, 2)
        count_user_days(stage.platform)
        assert purge_deleted(stage.platform) == 1


@dataclass
class Point:
    fence: int
    step: int
    loss: float | None


class TestMetrics:
    def test_what_stays_of_a_curve_are_ends_extremes_and_equal_strides(self) -> None:
        chance = random.Random(3)
        points = [Point(1, step, chance.random()) for step in range(3000)]
        points += [Point(2, step, chance.random()) for step in range(2000, 4000)]
        points[1234].loss, points[3456].loss = 9.0, -1.0
        kept = indices_to_keep(points, 100)
        assert len(kept) <= 100 and {0, 2999, 3000, 4999, 1234, 3456} <= set(kept)
        steps = sorted({points[index].step for index in kept})
        assert max(later - earlier for earlier, later in pairwise(steps)) <= 2 * 4000 / 94
        assert all(points[index].fence == 2 for index in kept if points[index].step > 2000 and index != 2999)
        assert [kept[place] for place in range(len(kept))] == sorted(kept)
        few = [points[index] for index in kept]
        assert indices_to_keep(few, 100) == list(range(len(few))), "twice is as good as once"

    def test_of_many_attempts_no_more_stay_than_there_is_room_for(self) -> None:
        points = [Point(index // 2, index, None) for index in range(1000)]
        kept = indices_to_keep(points, 50)
        assert len(kept) == 50 and {0, 999} <= set(kept)

    def test_curves_are_thinned_when_their_jobs_are_old_and_only_then(self, stage: Stage) -> None:
        stage.node()
        job = ended(stage)
        number = job_number(job)
        assert number is not None
        with stage.platform.database.transaction() as tx:
            for step in range(60):
                metrics.add(tx, number, 1, float(step), {"step": step, "loss": 1 / (1 + step)})
        platform = platform_with(stage, metrics_points=20)

        def steps() -> list[int]:
            with stage.platform.database.snapshot() as tx:
                return [point.step for point in metrics.of_job(tx, number)]

        days_pass(stage, 29)
        assert thin_old_metrics(platform) == 0 and len(steps()) == 60
        days_pass(stage, 2)
        assert thin_old_metrics(platform_with(stage, metrics_days=None)) == 0
        assert thin_old_metrics(platform) == 1
        left = steps()
        assert len(left) <= 20 and left[0] == 0 and left[-1] == 59
        assert thin_old_metrics(platform) == 0 and steps() == left


class TestUsersByTheDay:
    def test_a_time_is_parted_at_midnight(self) -> None:
        assert by_day(86_000, 173_000) == {0: 400, 86_400: 86_400, 172_800: 200}
        assert by_day(5, 5) == {}

    def test_whatever_is_counted_and_purged_in_whatever_order_the_sum_is_the_truth(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chance = random.Random(5)
        node = stage.node(slots=3)
        truth = 0.0
        for _ in range(6):
            job = stage.submit(chance.randint(1, 3))
            stage.settle()
            held, seconds = stage.holding()[job], chance.uniform(0.1, 2.5) * DAY_SECONDS
            stage.clock.pass_(seconds)
            truth += held * seconds
            node.end((job, 1), ExitKind.FINISHED)
            stage.settle()
            execs.delete(stage.platform, job, viewer=stage.admin)
            for work in chance.sample([purge_deleted, remove_folders, count_user_days, purge_deleted], 4):
                if chance.random() < 0.3:  # it dies at its first write
                    with monkeypatch.context() as dying:
                        for module, name in ((retention, "purge"), (usage, "put_day"), (retention, "folders_gone")):
                            dying.setattr(module, name, lambda *_: 1 / 0)
                        with suppress(ZeroDivisionError):
                            work(stage.platform)
                work(stage.platform)
        days_pass(stage, 3)
        for work in (remove_folders, count_user_days, purge_deleted, count_user_days):
            work(stage.platform)
        assert rows(stage)["jobs"] == rows(stage)["allocations"] == 0
        with stage.platform.database.snapshot() as tx:
            assert tx.execute(select(func.sum(user_days.c.slot_seconds))).scalar_one() == pytest.approx(truth)

    def test_a_long_history_is_read_and_counted_a_month_at_a_time(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.node()
        ended(stage)
        days_pass(stage, 100)
        ended(stage)
        days_pass(stage, 2)
        held, spans = usage.held, list[float]()

        def noted(tx: Any, since: int, before: float, *given: Any) -> Any:
            spans.append((before - since) / DAY_SECONDS)
            return held(tx, since, before, *given)

        monkeypatch.setattr(usage, "held", noted)
        assert count_user_days(stage.platform) == 2
        assert max(spans) == 31 and 100 <= sum(spans) <= 103
        with stage.platform.database.snapshot() as tx:
            assert tx.execute(select(func.sum(user_days.c.slot_seconds))).scalar_one() == pytest.approx(4 * 3600)

    def test_of_two_that_count_at_once_one_counts(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        stage.node()
        ended(stage)
        days_pass(stage, 2)
        held = usage.held

        def both(*given: Any) -> Any:
            monkeypatch.setattr(usage, "held", held)
            found = held(*given)
            assert count_user_days(stage.platform) == 1  # the other one, meanwhile
            return found

        monkeypatch.setattr(usage, "held", both)
        assert count_user_days(stage.platform) == 0
        assert rows(stage)["user_days"] == 1


def test_samples_and_sums_go_when_they_are_old(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "BATCH_ROWS", 4)
    stage.node(slots=2)
    ended(stage)
    for _ in range(3):
        for _ in range(4):
            agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.5), SlotUse("1", 0.5)])
            stage.clock.pass_(60)
        days_pass(stage, 1)
    assert forget_usage(stage.platform) == 16 and forget_usage(stage.platform) == 0
    assert count_user_days(stage.platform) == 1
    days_pass(stage, 30)
    assert forget_usage(stage.platform) == 8
    assert forget_roll_ups(stage.platform) == 0, "they are kept for ever"
    assert forget_roll_ups(platform_with(stage, usage_users_days=40.0)) == 0
    assert forget_roll_ups(platform_with(stage, usage_users_days=20.0)) == 1
    assert rows(stage)["slot_usage"] == rows(stage)["user_days"] == 0
