"""More rows than one statement may name, or one transaction should hold: lists, deletes, chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Row, event, select
from sqlalchemy.exc import DBAPIError

from edt_scheduler.attempts import lifecycle
from edt_scheduler.errors import DatabaseUnavailable, NoSuchUser, OutcomeUnknown
from edt_scheduler.model.jobs import JobKey, JobOrder
from edt_scheduler.model.states import JobState, Role
from edt_scheduler.operations import accounts, execs
from edt_scheduler.periodic.tasks import TASKS
from edt_scheduler.store import jobs as store
from edt_scheduler.store import outbox, queries
from edt_scheduler.store.database import Database
from edt_scheduler.store.tables import jobs
from edt_scheduler.views import JobView
from support.puppets import Stage
from support.seeded import crowd

STORE = Path(store.__file__).parent
BOUNDED = {
    "chunk": "what is named is cut",
    "ACTIVE": "states",
    "TERMINAL": "states",
    "_DECIDED_ON": "states",
    "_FAILED": "ways to end",
    "list(states)": "states",
    "[id_ for id_, _ in found]": "its query has a limit",
    "allocation_ids": "of a feed, which tells of MOST_CHANGES at once",
    "resize_ids": "of a feed",
    "job_ids": "of a feed",
    "[other for other in others if other != key_id]": "keys of one file",
    "resized": "a subquery",
    "concerned": "a subquery",
    "names": "of a page of images, of at most 501, or a chunk of keys",
}
"""What ``in_`` may be asked with, and why that is never too much."""


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that goes by the chunk takes two at a time."""
    monkeypatch.setattr(queries, "MOST_NAMED", 2)
    monkeypatch.setattr(execs, "READ_AT_ONCE", 2)
    monkeypatch.setattr(execs, "DELETED_AT_ONCE", 2)
    monkeypatch.setattr(execs, "STOPPED_AT_ONCE", 1)


def listed(stage: Stage, **how: Any) -> list[JobView]:
    return list(execs.jobs(stage.platform, viewer=stage.admin, **how))


def test_no_statement_names_a_list_of_unknown_length() -> None:
    asked = {
        (path.name, match[1])
        for path in STORE.rglob("*.py")
        for match in re.finditer(r"\bin_\(((?:[^()]|\([^()]*\))*)\)", path.read_text())
    }
    assert len(asked) > 14
    assert not {each for each in asked if each[1] not in BOUNDED}


def test_chunks_hold_each_number_once_in_order(few_at_once: None) -> None:
    assert list(queries.chunks([5, 1, 3, 1, 4])) == [[1, 3], [4, 5]]
    assert list(queries.chunks(iter([]))) == []


def test_a_list_is_the_same_however_little_is_read_at_once(
    stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are alike, and such as a language sorts otherwise than code points: by both databases alike."""
    accounts.add_user(stage.platform, "Zoe", "hash", Role.USER)
    crowd(stage.platform.database, stage.platform.clock(), "admin", 25, waiting=3)
    crowd(stage.platform.database, stage.platform.clock(), "Zoe", 6)
    with stage.platform.database.transaction() as tx:
        for number, name in ((3, "Über"), (4, "uber"), (9, "Z"), (10, "a_b"), (11, "aB"), (12, "_")):
            store.change(tx, number, app_name=name)
    everything = listed(stage)
    assert [job.number for job in everything] == list(range(1, 32))
    for key in JobKey:
        for descending in (False, True):
            order = JobOrder(key, descending)
            expected = sorted(everything, key=lambda job: getattr(job, key) or 0, reverse=descending)
            assert [job.number for job in listed(stage, order=order)] == [job.number for job in expected], order
            found = listed(stage, order=order, limit=7, states={JobState.FINISHED})
            over = [job.number for job in expected if job.state is JobState.FINISHED]
            assert [job.number for job in found] == over[:7]


def test_a_list_that_is_read_slowly_holds_no_connection(sqlite_stage: Stage, few_at_once: None) -> None:
    crowd(sqlite_stage.platform.database, sqlite_stage.platform.clock(), "admin", 5)
    reading = execs.jobs(sqlite_stage.platform, viewer=sqlite_stage.admin)
    next(reading)
    assert sqlite_stage.platform.database.reading.pool.checkedout() == 0  # type: ignore[attr-defined]
    execs.delete(sqlite_stage.platform, "edt-4", viewer=sqlite_stage.admin)
    sqlite_stage.submit()
    assert [job.exec_id for job in reading] == ["edt-2", "edt-3", "edt-5"]


def test_a_list_tells_a_job_that_changes_meanwhile_once_and_only_in_a_state_that_was_asked_for(
    stage: Stage, few_at_once: None
) -> None:
    crowd(stage.platform.database, stage.platform.clock(), "admin", 8, waiting=6)
    by_state = execs.jobs(stage.platform, viewer=stage.admin, order=JobOrder(JobKey.STATE))
    waiting = execs.jobs(stage.platform, viewer=stage.admin, states={JobState.SUBMITTED})
    changed, unmoved = [next(by_state)], [next(waiting)]
    execs.stop(stage.platform, "edt-5", viewer=stage.admin)
    changed, unmoved = changed + list(by_state), unmoved + list(waiting)
    assert [job.number for job in changed] == [1, 2, 3, 4, 5, 6, 7, 8] and changed[4].state is JobState.KILLED
    assert [job.number for job in unmoved] == [3, 4, 6, 7, 8]


def test_a_sorted_list_is_sorted_once(stage: Stage, few_at_once: None) -> None:
    crowd(stage.platform.database, stage.platform.clock(), "admin", 9)
    asked: list[str] = []

    def note(_c: Any, _x: Any, statement: str, *_: Any) -> None:
        if "app_name" in statement.partition("ORDER BY")[2]:
            asked.append(statement)

    event.listen(stage.platform.database.reading, "before_cursor_execute", note)
    assert len(listed(stage, order=JobOrder(JobKey.APP_NAME))) == 9
    event.remove(stage.platform.database.reading, "before_cursor_execute", note)
    assert len(asked) == 1


class TestDeletingAll:
    def test_the_lock_is_free_between_its_transactions(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crowd(stage.platform.database, stage.platform.clock(), "admin", 9, waiting=2)
        some, sizes = execs._delete_some, []
        other = Database(stage.platform.settings.database)

        def then_another_writes(*given: Any) -> list[int]:
            deleted = some(*given)
            sizes.append(len(deleted))
            with other.transaction() as tx:
                outbox.put_scheduler(tx, stage.platform.clock())
            return deleted

        monkeypatch.setattr(execs, "_delete_some", then_another_writes)
        try:
            assert execs.delete_all(stage.platform, viewer=stage.admin) == 9
        finally:
            other.close()
        assert sizes == [2, 2, 2, 2, 1, 0], "one that is not over is as many as some that are"
        assert listed(stage) == []

    def test_what_is_broken_off_is_finished_when_it_is_asked_again(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crowd(stage.platform.database, stage.platform.clock(), "admin", 5)
        with monkeypatch.context() as patch:
            with _failing_from_the_second_on(patch), pytest.raises(DatabaseUnavailable):
                execs.delete_all(stage.platform, viewer=stage.admin)
            assert [job.number for job in listed(stage)] == [3, 4, 5]
        assert execs.delete_all(stage.platform, viewer=stage.admin) == 3
        assert execs.delete_all(stage.platform, viewer=stage.admin) == 0

    def test_what_was_deleted_without_anybody_knowing_is_counted_once(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crowd(stage.platform.database, stage.platform.clock(), "admin", 5)
        with lost_answers(stage, monkeypatch, 1):
            assert execs.delete_all(stage.platform, viewer=stage.admin) == 5
        assert listed(stage) == []

    def test_a_job_that_comes_meanwhile_stays(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crowd(stage.platform.database, stage.platform.clock(), "admin", 3)
        some, come = execs._delete_some, []

        def beside(*given: Any) -> list[int]:
            come.append(stage.submit())
            return some(*given)

        monkeypatch.setattr(execs, "_delete_some", beside)
        assert execs.delete_all(stage.platform, viewer=stage.admin) == 3
        assert [job.exec_id for job in listed(stage)] == come

    def test_the_outbox_gets_a_row_a_transaction_and_none_a_job(self, stage: Stage) -> None:
        crowd(stage.platform.database, stage.platform.clock(), "admin", 40)
        assert execs.delete_all(stage.platform, viewer=stage.admin) == 40
        with stage.platform.database.snapshot() as tx:
            assert len(outbox.pending(tx)) <= 1


class TestRemovingAUserOfManyJobs:
    def test_the_user_is_gone_before_the_first_job_is_stopped_and_each_transaction_stops_a_few(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        platform = stage.platform
        ada = accounts.add_user(platform, "ada", "hash")
        crowd(platform.database, platform.clock(), "ada", 6, waiting=4)
        some, others, users_then, left = store.of_removed_users, [], [], []

        def noted(tx: Connection, limit: int) -> list[Row[Any]]:
            rows = some(tx, limit)
            users_then.append([user.name for user in accounts.users(platform)])
            left.append(len(some(tx, 9)))
            if not others:
                with pytest.raises(NoSuchUser):
                    stage.submit(owner=ada)
            others.append(limit)
            return rows

        with monkeypatch.context() as patch:
            patch.setattr(store, "of_removed_users", noted)
            accounts.remove_user(platform, "ada")
        assert users_then == [["admin"]] * 9
        assert left == [4, 4, 3, 3, 2, 2, 1, 1, 0], "looked at, then stopped; one at a time"
        states = [job.state for job in listed(stage)]
        assert states == [JobState.FINISHED] * 2 + [JobState.KILLED] * 4

    def test_what_is_broken_off_the_platform_finishes_by_itself(
        self, stage: Stage, few_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        platform = stage.platform
        accounts.add_user(platform, "ada", "hash")
        crowd(platform.database, platform.clock(), "ada", 4, waiting=3)
        stop, stopped = lifecycle.stop, list[int]()

        def dying(tx: Connection, row: Row[Any], now: float) -> None:
            if stopped:
                raise DatabaseUnavailable("went away", passing=False)
            stopped.append(row.id)
            stop(tx, row, now)

        with monkeypatch.context() as patch:
            patch.setattr(lifecycle, "stop", dying)
            accounts.remove_user(platform, "ada")  # who is removed, whatever becomes of the jobs just now
        waiting = [job.number for job in listed(stage, states={JobState.SUBMITTED})]
        assert (stopped, waiting) == ([2], [3, 4])
        accounts.add_user(platform, "ada", "another")
        other = stage.submit(owner=accounts.user(platform, "ada"))
        task = next(task for task in TASKS if task.name == "edt.stop-left-jobs")
        assert task.work(platform) == 2
        assert task.work(platform) == 0
        assert [job.exec_id for job in listed(stage, states={JobState.SUBMITTED})] == [other]


@contextmanager
def lost_answers(stage: Stage, monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[None]:
    """So many of the next commits are done, and nobody is told."""
    database, left = stage.platform.database, [None] * times
    transaction = database.transaction

    @contextmanager
    def unsure(**how: bool) -> Iterator[Connection]:
        with transaction(**how) as tx:
            yield tx
        if left:
            left.pop()
            raise OutcomeUnknown

    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.store.database.RETRY_PAUSES_SECONDS", (0.0, 0.0))
        patch.setattr(database, "transaction", unsure)
        yield


def test_a_submit_whose_number_was_perhaps_reserved_is_surely_no_job(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lost_answers(stage, monkeypatch, 3), pytest.raises(DatabaseUnavailable, match="nothing was changed"):
        stage.submit()
    assert listed(stage) == []
    with lost_answers(stage, monkeypatch, 2):
        assert [stage.submit()] == [job.exec_id for job in listed(stage)]


@contextmanager
def _failing_from_the_second_on(patch: pytest.MonkeyPatch) -> Iterator[None]:
    some, calls = execs._delete_some, []

    def failing(*given: Any) -> list[int]:
        calls.append(given)
        if len(calls) > 1:
            raise DatabaseUnavailable("went away", passing=False)
        return some(*given)

    patch.setattr(execs, "_delete_some", failing)
    yield


def test_a_statement_with_too_many_values_is_our_mistake_and_no_outage(database: Database) -> None:
    mark, most = ("%s", 70_000) if database.reading.dialect.name == "postgresql" else ("?", 300_000)
    with pytest.raises(DBAPIError, match=r"65535|variables"), database.snapshot() as tx:
        tx.exec_driver_sql(f"SELECT 1 WHERE 1 IN ({','.join([mark] * most)})", tuple(range(most)))
    with database.snapshot() as tx:
        assert tx.execute(select(jobs.c.id)).all() == []
