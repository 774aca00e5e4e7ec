"""Submissions that come at the same time: one answer each, and what is wrong with one harms no other."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from edt_contract import durable
from edt_scheduler.errors import DatabaseUnavailable, KeyReused, NoSuchUser, SubmissionInvalid, SubmitExpired
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import JobSpec
from edt_scheduler.operations import accounts, execs, history
from edt_scheduler.operations.submitting import StagedSubmission, submit_all
from edt_scheduler.store import jobs, reservations
from edt_scheduler.views import JobView
from support.puppets import Stage, stage_code

SPEC = JobSpec("edtPyTorch", "main.py", "", "app")


def submission(stage: Stage, spec: JobSpec = SPEC, key: IdempotentRequest | None = None) -> StagedSubmission:
    return StagedSubmission(stage.admin, spec, stage_code(stage.platform, f"# {spec.app_name}\n"), key)


def named(found: Sequence[JobView | Exception]) -> list[str | type]:
    return [each.exec_id if isinstance(each, JobView) else type(each) for each in found]


def held(stage: Stage) -> set[int]:
    with stage.platform.database.snapshot() as tx:
        return reservations.held(tx)


def folders(stage: Stage) -> list[str]:
    return sorted(path.name for path in stage.platform.settings.jobs.iterdir())


def test_each_gets_a_job_of_its_own_in_the_order_in_which_they_came(stage: Stage) -> None:
    wanted = [submission(stage, replace(SPEC, app_name=f"job {number}")) for number in range(3)]
    wanted[1] = replace(wanted[1], spec=replace(wanted[1].spec, remark="by the way", environ={"A": "b"}))
    found = submit_all(stage.platform, wanted)
    assert named(found) == ["edt-1", "edt-2", "edt-3"] == folders(stage)
    for number, job in enumerate(found):
        assert isinstance(job, JobView) and job.app_name == f"job {number}"
        assert (job.work_dir / "main.py").read_text() == f"# job {number}\n"
        events = history.events(stage.platform, job.exec_id, viewer=stage.admin, limit=9)
        assert [each.seq for each in events] == list(range(1, len(events) + 1))
        assert {each.kind for each in events} == ({"state", "remark"} if number == 1 else {"state"})
    assert held(stage) == set()
    assert list(stage.platform.settings.staged.iterdir()) == []
    assert stage.submit() == "edt-4"


def test_together_they_take_two_transactions_of_which_one_waits_for_the_disk(sqlite_stage: Stage) -> None:
    durable_ones: list[bool] = []

    def note(connection: Any) -> None:
        durable_ones.append(connection.get_execution_options()["edt_durable"])

    engine = sqlite_stage.platform.database.writing
    wanted = [submission(sqlite_stage) for _ in range(5)]
    event.listen(engine, "commit", note)
    try:
        submit_all(sqlite_stage.platform, wanted)
    finally:
        event.remove(engine, "commit", note)
    assert durable_ones == [False, True]


def test_what_is_wrong_with_one_is_the_answer_to_that_one(stage: Stage) -> None:
    platform = stage.platform
    gone = accounts.add_user(platform, "ada", "hash")
    accounts.remove_user(platform, "ada")
    key = IdempotentRequest.of("k-1", "a request")
    (before,) = submit_all(platform, [submission(stage, key=key)])
    wanted = [
        submission(stage),
        replace(submission(stage), owner=gone),
        submission(stage, replace(SPEC, model_main="other.py")),
        submission(stage, key=key),
        submission(stage, key=IdempotentRequest.of("k-1", "another request")),
        submission(stage),
    ]
    found = submit_all(platform, wanted)
    first, last = found[0], found[-1]
    assert isinstance(first, JobView) and isinstance(last, JobView) and isinstance(before, JobView)
    assert named(found) == [first.exec_id, NoSuchUser, SubmissionInvalid, before.exec_id, KeyReused, last.exec_id]
    assert folders(stage) == sorted([before.exec_id, first.exec_id, last.exec_id])
    left = {each.staged for each in wanted if each.staged.exists()}
    assert left == {each.staged for each in wanted[1:5]}, "they are the caller's"
    assert held(stage) == set()


def test_the_same_request_twice_at_once_makes_one_job(stage: Stage) -> None:
    key = IdempotentRequest.of("k-1", "a request")
    assert named(submit_all(stage.platform, [submission(stage, key=key) for _ in range(3)])) == ["edt-1"] * 3
    assert folders(stage) == ["edt-1"]
    assert held(stage) == set()


def test_a_number_that_the_home_has_taken_is_passed_over(stage: Stage) -> None:
    taken = stage.platform.settings.jobs / "edt-2"
    taken.mkdir()
    assert named(submit_all(stage.platform, [submission(stage) for _ in range(3)])) == ["edt-1", "edt-4", "edt-3"]
    assert list(taken.iterdir()) == []
    assert held(stage) == set()


def test_a_folder_that_the_disk_refuses_costs_the_others_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = durable.sync

    def full(path: Path) -> None:
        if path.name == "edt-2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(path)

    wanted = [submission(stage) for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", full)
        found = submit_all(stage.platform, wanted)
    assert named(found) == ["edt-1", OSError, "edt-3"]
    assert folders(stage) == ["edt-1", "edt-3"]
    assert [each.staged.exists() for each in wanted] == [False, True, False]
    assert held(stage) == set()


def test_a_row_that_cannot_be_written_costs_the_others_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    add = jobs.add

    def refuse(tx: Any, new: Sequence[jobs.NewJob], now: float) -> None:
        if any(job.spec.app_name == "odd" for job in new):
            raise ValueError("unforeseen")
        add(tx, new, now)

    wanted = [submission(stage), submission(stage, replace(SPEC, app_name="odd")), submission(stage)]
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "add", refuse)
        found = submit_all(stage.platform, wanted)
    assert named(found) == ["edt-1", ValueError, "edt-3"]
    assert folders(stage) == ["edt-1", "edt-3"]
    assert held(stage) == set()


def test_a_reservation_that_has_expired_makes_no_job_of_that_one_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = durable.sync

    def expire(path: Path) -> None:
        if path.name == "edt-2":
            with stage.platform.database.transaction() as tx:
                reservations.drop(tx, [2])
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", expire)
        found = submit_all(stage.platform, [submission(stage) for _ in range(3)])
    assert named(found) == ["edt-1", SubmitExpired, "edt-3"]
    assert folders(stage) == ["edt-1", "edt-3"]


def test_while_the_database_is_away_none_is_taken_and_no_folder_is_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise DatabaseUnavailable("is away", passing=False)

    wanted = [submission(stage) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "add", away)
        found = submit_all(stage.platform, wanted)
    assert named(found) == [DatabaseUnavailable, DatabaseUnavailable]
    assert folders(stage) == []
    assert all((each.staged / "main.py").is_file() for each in wanted)
    assert list(execs.jobs(stage.platform, viewer=stage.admin)) == []


def test_a_home_that_cannot_be_read_when_one_is_taken_back_takes_no_job_from_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = accounts.add_user(stage.platform, "gone", "hash")
    accounts.remove_user(stage.platform, "gone")
    good, bad = submission(stage), replace(submission(stage), owner=gone)
    exists = Path.exists

    def broken(path: Path) -> bool:
        if path == bad.staged:
            raise OSError(errno.EIO, "the disk does not answer")
        return exists(path)

    monkeypatch.setattr(Path, "exists", broken)
    assert named(submit_all(stage.platform, [good, bad])) == ["edt-1", NoSuchUser]
