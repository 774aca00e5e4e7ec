"""Job folders that no row knows: shut out, left while anything of them lives, moved with a note, never removed."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import Connection

from edt_contract.crash_points import CrashPoint
from edt_contract.encoding import dump_line
from edt_contract.reports import Report, ReportKind
from edt_scheduler import doctor
from edt_scheduler.errors import SubmitExpired
from edt_scheduler.home import fence_files, lost_found
from edt_scheduler.operations import execs
from edt_scheduler.periodic import sweeping
from edt_scheduler.periodic.retention import remove_folders
from edt_scheduler.periodic.sweeping import STAGED_SECONDS, Leftovers
from edt_scheduler.platform import pairing
from edt_scheduler.settings import Settings
from edt_scheduler.store import home, jobs, reservations
from support.databases import sqlite_first
from support.puppets import Clock, Stage

database_url = sqlite_first()


def job_folder(settings: Settings, name: str, *spools: str) -> Path:
    """A folder as a job has it after it has trained, with a result; ``spools``: of supervisors without a last word."""
    folder = settings.jobs / name
    for inside in ("checkpoint", "model", "spool"):
        (folder / inside).mkdir(parents=True)
    (folder / "model" / "result.pth").write_text("weights")
    for spool in spools:
        (folder / "spool" / spool).mkdir()
        write_report(folder, spool, ReportKind.ATTEMPT_STARTED)
    return folder


def write_report(folder: Path, spool: str, kind: ReportKind) -> None:
    """Append a report, as its supervisor would."""
    fence, _, node = spool.partition("-")
    report = Report(folder.name, int(fence), node, 1, kind, 0.0, {})
    with (folder / "spool" / spool / "reports.jsonl").open("ab") as file:
        file.write(dump_line(report))


def result(stage: Stage, entry: str, job: str) -> str:
    return (stage.platform.settings.lost_found / entry / job / "model" / "result.pth").read_text()


def test_a_folder_without_a_row_is_moved_whole_with_when_and_why(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    settings = stage.platform.settings
    job = stage.submitted()
    for name in ("edt-7", "edt-8"):
        write_report(job_folder(settings, name, "2-n1"), "2-n1", ReportKind.ATTEMPT_ENDED)
    with caplog.at_level(logging.WARNING):
        Leftovers(stage.platform).sweep()
    assert caplog.messages == [f"2 job folders of no known job moved to {settings.lost_found}"]
    assert [path.name for path in settings.jobs.iterdir()] == [job.exec_id]
    assert [result(stage, name, name) for name in ("edt-7", "edt-8")] == ["weights"] * 2
    note = json.loads((settings.lost_found / "edt-7" / "why.json").read_text())
    assert note == {
        "job": "edt-7",
        "moved_at": stage.clock.now,
        "from": str(settings.jobs / "edt-7"),
        "why": "the database has no row of it (its newest attempt is 2)",
    }


def test_it_is_shut_out_at_once_and_moved_when_its_supervisor_has_said_its_last_word(stage: Stage) -> None:
    folder = job_folder(stage.platform.settings, "edt-7", "1-n1", "2-n2")
    write_report(folder, "1-n1", ReportKind.ATTEMPT_ENDED)
    leftovers = Leftovers(stage.platform, Clock(0))
    leftovers.sweep()
    assert fence_files.lowest(folder / "checkpoint") == lost_found.NO_ATTEMPT
    leftovers.sweep()
    assert folder.exists(), "the supervisor on n2 may live"
    write_report(folder, "2-n2", ReportKind.ATTEMPT_ENDED)
    leftovers.sweep()
    assert not folder.exists()
    assert result(stage, "edt-7", "edt-7") == "weights"


def test_one_that_never_says_a_last_word_is_gone_when_it_stood_still_for_longer_than_an_agent_needs(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    folder, monotonic = job_folder(sqlite_stage.platform.settings, "edt-7", "1-n1"), Clock(0)
    leftovers = Leftovers(sqlite_stage.platform, monotonic)
    for number in range(10):  # its engines work
        (folder / "spool" / "1-n1" / "usage.json").write_text("x" * number)
        leftovers.sweep()
        monotonic.pass_(100)
    logged = [message for message in caplog.messages if "edt-7 (processes may live: 1-n1)" in message]
    assert len(logged) == 1, "told once, not at every look"
    leftovers.sweep()
    monotonic.pass_(21)
    assert folder.exists()
    leftovers.sweep()
    assert not folder.exists()


def test_a_job_with_a_row_is_left_alone_whatever_lies_beside_it(stage: Stage) -> None:
    job = stage.submitted()
    stray = stage.platform.settings.jobs / "notes.txt"
    stray.write_text("of a person")
    Leftovers(stage.platform).sweep()
    assert job.directory.exists() and stray.exists()
    assert fence_files.lowest(job.directory / "checkpoint") == 0
    assert not stage.platform.settings.lost_found.exists()


def test_a_submit_that_is_about_to_commit_keeps_its_folder_and_holds_nobody_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out, go_on = threading.Event(), threading.Event()

    def pause(point: CrashPoint) -> None:
        if point is CrashPoint.API_LAID_OUT:
            laid_out.set()
            assert go_on.wait(30)

    with ThreadPoolExecutor() as pool:
        with monkeypatch.context() as paused:
            paused.setattr("edt_scheduler.operations.submitting.crash_point", pause)
            submitting = pool.submit(stage.submitted)
            assert laid_out.wait(30)
        Leftovers(stage.platform).sweep()
        assert stage.submit() == "edt-2", "it has the lock"
        go_on.set()
        job = submitting.result()
    assert job.exec_id == "edt-1"
    assert (job.work_dir / "main.py").exists()
    assert fence_files.lowest(job.directory / "checkpoint") == 0
    assert lost_found.entries(stage.platform.settings) == []


def test_a_submit_that_stood_still_for_an_hour_is_refused_and_its_number_is_no_jobs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_still(point: CrashPoint) -> None:
        if point is CrashPoint.API_LAID_OUT:
            stage.clock.pass_(reservations.KEPT_SECONDS)
            Leftovers(stage.platform).sweep()

    with monkeypatch.context() as slow:
        slow.setattr("edt_scheduler.operations.submitting.crash_point", stand_still)
        with pytest.raises(SubmitExpired, match=r"longer than an hour.*send it again"):
            stage.submit()
    assert stage.platform.database.trouble is None, "the database can write"
    assert list(execs.jobs(stage.platform, viewer=stage.admin)) == []
    assert [entry.name for entry in lost_found.entries(stage.platform.settings)] == ["edt-1"]
    assert stage.submit() == "edt-2"


def test_a_sweep_ends_in_time_and_the_next_one_goes_on_behind_it(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has time for one folder, and the first one's supervisor lives."""
    monkeypatch.setattr(sweeping, "in_time", lambda folders: islice(folders, 1))
    settings = sqlite_stage.platform.settings
    for name, *spools in (("edt-7", "1-n1"), ("edt-8",), ("edt-9",)):
        job_folder(settings, name, *spools)
    leftovers = Leftovers(sqlite_stage.platform, Clock(0))
    assert [leftovers.sweep() for _ in range(4)] == [0, 1, 1, 0]
    assert [path.name for path in settings.jobs.iterdir()] == ["edt-7"]
    assert len([message for message in caplog.messages if "may not be moved yet" in message]) == 1


def test_only_what_a_snapshot_found_is_asked_about_under_the_writers_lock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        stage.submit()
    job_folder(stage.platform.settings, "edt-9", "1-n1")
    known, asked = jobs.known, list[set[int]]()

    def noted(tx: Connection, numbers: Collection[int]) -> set[int]:
        if tx.engine is stage.platform.database.writing:
            asked.append(set(numbers))
        return known(tx, numbers)

    monkeypatch.setattr(jobs, "known", noted)
    Leftovers(stage.platform).sweep()
    assert asked == [{9}]


def test_a_second_folder_of_a_name_lies_beside_the_first(sqlite_stage: Stage) -> None:
    settings = sqlite_stage.platform.settings
    for text in ("first", "second"):
        (job_folder(settings, "edt-7") / "model" / "result.pth").write_text(text)
        Leftovers(sqlite_stage.platform).sweep()
    assert [entry.name for entry in lost_found.entries(settings)] == ["edt-7", "edt-7.2"]
    assert [result(sqlite_stage, name, "edt-7") for name in ("edt-7", "edt-7.2")] == ["first", "second"]


def test_nothing_is_moved_or_removed_where_home_and_database_no_longer_belong_together(stage: Stage) -> None:
    """The database was replaced while the scheduler ran."""
    pairing.pair(stage.platform.database, stage.platform.settings, 0.0)
    deleted, node = stage.submitted(), stage.node()
    execs.delete(stage.platform, deleted.exec_id, viewer=stage.admin)
    stage.settle()
    assert node.running == {}
    folder = job_folder(stage.platform.settings, "edt-7")
    with stage.platform.database.transaction() as tx:
        home.set_identity(tx, "another", "/another", 0.0)
    Leftovers(stage.platform).sweep()
    remove_folders(stage.platform)
    assert folder.exists() and deleted.directory.exists()


def test_what_its_disk_refuses_stays_and_is_tried_again(sqlite_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    settings = sqlite_stage.platform.settings
    folder = job_folder(settings, "edt-7")
    settings.lost_found.write_text("no folder")
    leftovers = Leftovers(sqlite_stage.platform)
    leftovers.sweep()
    assert (folder / "model" / "result.pth").exists()
    assert "edt-7" in caplog.text
    settings.lost_found.unlink()
    leftovers.sweep()
    assert result(sqlite_stage, "edt-7", "edt-7") == "weights"


@pytest.mark.parametrize(
    "point", [CrashPoint.SCHEDULER_FENCED, CrashPoint.SCHEDULER_NOTED, CrashPoint.SCHEDULER_SET_ASIDE]
)
def test_a_scheduler_that_dies_in_between_loses_nothing_and_the_next_one_ends_it(
    stage: Stage, point: CrashPoint
) -> None:
    settings = stage.platform.settings
    job_folder(settings, "edt-1")
    stage.platform.database.close()  # a connection is not for two processes

    def die() -> None:
        os.environ["EDT_CRASH"] = point
        Leftovers(stage.platform).sweep()

    process = multiprocessing.get_context("fork").Process(target=die)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    Leftovers(stage.platform).sweep()
    assert [entry.name for entry in lost_found.entries(settings)] == ["edt-1"]
    assert result(stage, "edt-1", "edt-1") == "weights"
    assert stage.submit() == "edt-2", "its number is given to nobody"


def test_only_what_is_named_is_removed(sqlite_stage: Stage) -> None:
    settings = sqlite_stage.platform.settings
    for name in ("edt-7", "edt-8"):
        job_folder(settings, name)
    Leftovers(sqlite_stage.platform).sweep()
    (settings.lost_found / "#1234").mkdir()  # a file system's own
    assert [entry.name for entry in lost_found.entries(settings)] == ["edt-7", "edt-8"]
    assert lost_found.entries(settings)[0].bytes > len("weights")
    lost_found.remove(settings, "edt-7")
    for name in ("edt-7", "..", "#1234", "edt-9"):
        with pytest.raises(FileNotFoundError):
            lost_found.remove(settings, name)
    assert sorted(path.name for path in settings.lost_found.iterdir()) == ["#1234", "edt-8"]


def test_one_that_is_roots_alone_is_told_of_and_not_taken_for_empty() -> None:
    with tempfile.TemporaryDirectory() as place:
        settings = Settings(home=Path(place), database_url="", broker_url="")
        assert doctor.look(settings)["problem"] == "there is no database yet: the first start makes one"
        us = os.geteuid()
        settings.lost_found.mkdir(0o700 if us == 0 else 0)
        (Path(place) / "edt.db").touch()
        try:
            if us == 0:
                for path in (place, Path(place) / "edt.db"):
                    os.chown(path, 65534, 65534)
                os.seteuid(65534)
            problem = doctor.look(settings)["problem"]
        finally:
            os.seteuid(us)
        settings.lost_found.chmod(0o700)
    assert str(problem).startswith(f"{settings.lost_found} cannot be read and written")


def test_what_a_broken_off_upload_left_goes_after_a_day_be_it_a_file_or_a_folder(sqlite_stage: Stage) -> None:
    staged = sqlite_stage.platform.settings.staged
    for name in ("old-file", "new-file"):
        (staged / name).write_bytes(b"half an archive")
    (staged / "old-folder").mkdir()
    (staged / "old-folder" / "main.py").touch()
    long_ago = time.time() - STAGED_SECONDS - 60
    for name in ("old-file", "old-folder"):
        os.utime(staged / name, (long_ago, long_ago))
    assert Leftovers(sqlite_stage.platform).sweep() == 2
    assert [path.name for path in staged.iterdir()] == ["new-file"]
    assert Leftovers(sqlite_stage.platform).sweep() == 0
