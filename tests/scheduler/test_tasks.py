"""The periodic tasks: what they do, when they run, and that a failed one waits for its next period."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from celery.beat import EmbeddedService
from sqlalchemy import text

from edt_scheduler.errors import HomeUnusable
from edt_scheduler.model.idempotency import KEPT_SECONDS, IdempotentRequest
from edt_scheduler.notify.broker import TASKS_QUEUE, celery_app
from edt_scheduler.operations import execs, history
from edt_scheduler.periodic.beat import FIRST_SECONDS, Beat, Taking, Timetable, _Sender, _sending
from edt_scheduler.periodic.retention import remove_folders
from edt_scheduler.periodic.sweeping import sweep_changes, sweep_keys, sweep_leftovers
from edt_scheduler.periodic.tasks import TASKS, Runner, Task
from edt_scheduler.platform import Platform, pairing
from edt_scheduler.store import changes, idempotency
from edt_scheduler.store.database import Database, in_batches, in_time
from support.databases import sqlite_first
from support.puppets import Clock, Stage
from support.waiting import until

database_url = sqlite_first()


def task(work: Callable[[Platform], int], name: str = "edt.try", period: float = 30) -> Task:
    return Task(name, "things done", period, 60, work)


def deleted_jobs(stage: Stage, count: int) -> list[Path]:
    """Folders of jobs that were deleted and are over."""
    jobs = [stage.submitted() for _ in range(count)]
    for job in jobs:
        execs.delete(stage.platform, job.exec_id, viewer=stage.admin)
    return [job.directory for job in jobs]


def without_its_broker(stage: Stage, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Platform:
    """The platform of a scheduler whose broker does not answer."""
    broker_url = f"redis+socket://{folder / 'nobody'}"
    monkeypatch.setenv("EDT_BROKER_URL", broker_url)
    monkeypatch.setenv("EDT_HOME", str(stage.platform.settings.home))
    return replace(stage.platform, settings=stage.platform.settings.model_copy(update={"broker_url": broker_url}))


def waiting(valkey: str) -> int:
    """How many messages wait for a worker."""
    with celery_app(valkey, sends=True).connection_for_read() as connection:
        return int(connection.default_channel.queue_declare(TASKS_QUEUE).message_count)


class TestWhen:
    def test_all_run_soon_after_the_start_and_then_each_on_its_period(self) -> None:
        often, seldom = task(lambda _: 0, "edt.often", 30), task(lambda _: 0, "edt.seldom", 100)
        timetable, ran = Timetable([often, seldom], 1000.0), []
        for now in range(1000, 1210):
            for due in timetable.due(now):
                timetable.began(due, now)
                ran.append((now - 1000 - FIRST_SECONDS, due.name))
        assert ran == [
            *[(0, "edt.often"), (0, "edt.seldom")],
            *[(at, "edt.often") for at in (30, 60, 90)],
            (100, "edt.seldom"),
            *[(at, "edt.often") for at in (120, 150, 180)],
            *[(200, "edt.seldom")],
        ]

    def test_it_rests_until_the_next_is_due(self) -> None:
        timetable = Timetable([task(lambda _: 0)], 0.0)
        assert timetable.rest(1.0) == FIRST_SECONDS - 1
        timetable.began(*timetable.due(FIRST_SECONDS), FIRST_SECONDS)
        assert timetable.rest(FIRST_SECONDS) == 30
        assert timetable.rest(100) == 0

    def test_each_has_its_own_name_and_time_to_end_before_it_is_ended(self) -> None:
        assert len({each.name for each in TASKS}) == len(TASKS)
        assert all(each.name.startswith("edt.") and each.limit_seconds >= 60 for each in TASKS)

    def test_they_run_beside_whoever_leads_and_no_more_when_that_ends(
        self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        ran: list[str] = []

        def work(_: Platform) -> int:
            ran.append(threading.current_thread().name)
            return 0

        with Beat(sqlite_stage.platform, [task(work, period=0.01)]):
            until(lambda: len(ran) > 2)
        count = len(ran)
        assert set(ran) == {"tasks"}
        assert not any(thread.name == "tasks" for thread in threading.enumerate())
        assert len(ran) == count

    def test_with_a_broker_they_are_the_workers_until_it_has_said_nothing_for_three_periods(self) -> None:
        often = task(lambda _: 0)
        taking = Taking([often, task(lambda _: 0, "edt.seldom", 3600)], 0.0)
        assert not taking.nobody(89.0)
        assert taking.nobody(90.0), "none has ever begun"
        taking.began(often, 100.0)
        taking.ended(101.0)
        assert not taking.nobody(190.0)
        assert taking.nobody(191.0)

    def test_while_the_worker_runs_one_it_has_until_its_limit_before_anybody_else_runs_them(self) -> None:
        slow, next_one = replace(task(lambda _: 0), limit_seconds=300), task(lambda _: 0, "edt.next")
        taking = Taking([slow, next_one], 0.0)
        taking.began(slow, 10.0)
        assert not taking.nobody(10.0 + 300 + 89)
        assert taking.nobody(10.0 + 300 + 90), "it hangs, and cannot be killed"
        taking.began(next_one, 500.0)  # the other one was killed at its limit and said nothing
        assert taking.running is next_one and not taking.nobody(500.0 + 60 + 89)

    def test_a_worker_that_dies_in_a_task_leaves_the_next_one_time_to_begin(self) -> None:
        taking = Taking([task(lambda _: 0)], 0.0)
        taking.began(task(lambda _: 0), 10.0)
        taking.ended(100.0)
        assert not taking.nobody(189.0)
        taking.ended(180.0)  # the next one dies before it has begun any
        assert taking.nobody(190.0)

    def test_where_the_broker_is_away_for_long_the_scheduler_runs_them_itself_and_says_so_once(
        self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        platform = without_its_broker(sqlite_stage, monkeypatch, tmp_path)
        ran: list[Platform] = []
        with Beat(platform, [task(lambda platform: bool(ran.append(platform)), period=0.05)]):
            until(lambda: len(ran) > 2)
        assert [record.getMessage() for record in caplog.records] == [
            "no worker takes the periodic tasks; until one does, this scheduler runs them itself"
        ]

    def test_one_that_hangs_here_keeps_nobody_from_starting_the_worker_again(
        self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        platform = without_its_broker(sqlite_stage, monkeypatch, tmp_path)
        hangs, answers = threading.Event(), threading.Event()

        def hang(_: Platform) -> int:
            hangs.set()
            answers.wait()
            return 0

        with Beat(platform, [task(hang, period=0.05)]) as running:
            assert running._worker is not None and hangs.wait(30)
            first = running._worker.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            until(lambda: running._worker is not None and running._worker.pid not in {None, first})
            answers.set()

    def test_what_the_worker_hangs_in_is_left_to_it_and_the_others_are_run(
        self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        platform = without_its_broker(sqlite_stage, monkeypatch, tmp_path)
        ran: list[str] = []
        tasks = [
            replace(task(lambda _, name=name: bool(ran.append(name)), name, 0.05), limit_seconds=0)  # type: ignore[misc]
            for name in ("edt.hangs", "edt.quick")
        ]
        running = Beat(platform, tasks)
        running._receive(0)
        os.write(running._writing, b"begun edt.hangs\n")
        with running:
            until(lambda: len(ran) > 4)
        assert set(ran) == {"edt.quick"}

    def test_what_waits_from_before_is_removed_and_what_waits_in_vain_does_not_pile_up(
        self, monkeypatch: pytest.MonkeyPatch, valkey: str
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        before = celery_app(valkey, sends=True)
        for _ in range(5):
            before.send_task("edt.try", queue=TASKS_QUEUE)
        assert waiting(valkey) == 5
        in_vain = threading.Event()
        app = _sending(valkey, [task(lambda _: 0, name) for name in ("edt.one", "edt.two", "edt.three")])
        sender = _Sender(in_vain.is_set, app=app)
        sender.tick()
        while sender.tick() <= 0:
            pass
        assert waiting(valkey) == 3, "one message a task"
        in_vain.set()
        for entry in sender.schedule.values():
            sender.apply_entry(entry)
        assert waiting(valkey) == 1
        sender.close()
        before.close()

    def test_a_message_says_only_the_name_and_dies_after_a_period(
        self, monkeypatch: pytest.MonkeyPatch, valkey: str
    ) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.beat.FIRST_SECONDS", 0.0)
        sender = EmbeddedService(
            _sending(valkey, [task(lambda _: 0)]), thread=True, scheduler_cls=partial(_Sender, lambda: False)
        )
        with celery_app(valkey, sends=False).connection_for_read() as connection:
            queue = connection.SimpleQueue(TASKS_QUEUE)
            sender.start()
            message = queue.get(timeout=30)
            sender.stop()
            queue.close()
        assert message.headers["task"] == "edt.try"
        assert message.payload[:2] == [[], {}]
        left = datetime.fromisoformat(message.headers["expires"]) - datetime.now(UTC)
        assert 0 < left.total_seconds() <= 30


class TestFailures:
    def test_one_is_logged_once_with_its_name_and_so_is_that_it_works_again(
        self, sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        answers: list[object] = [ZeroDivisionError("none"), ZeroDivisionError("none"), OSError(28, "disk full"), 3, 0]

        def work(_: Platform) -> int:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, int)
            return answer

        runner = Runner(sqlite_stage.platform)
        for _ in range(5):
            runner.run(task(work))
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("ERROR", "edt.try failed: none; it is tried again every 30 s"),
            ("ERROR", "edt.try failed: [Errno 28] disk full; it is tried again every 30 s"),
            ("INFO", "edt.try works again"),
            ("INFO", "edt.try: 3 things done"),
        ]
        assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False]

    def test_while_the_database_is_away_they_are_quiet(
        self, sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        runner = Runner(replace(sqlite_stage.platform, database=Database("sqlite:////nonexistent/edt.db")))
        for each in TASKS:
            runner.run(each)
        assert caplog.text == ""


class TestBatches:
    def test_they_end_when_there_is_no_more_or_the_time_is_over(self) -> None:
        clock = Clock(0)
        left = [1, 1, 2, 3, 5]

        def batch() -> int:
            clock.pass_(1)
            return left.pop(0) if left else 0

        assert in_batches(batch, 3, clock) == 4
        assert in_batches(batch, 30, clock) == 8
        assert in_batches(batch, 30, clock) == 0

    def test_things_are_taken_one_by_one_until_the_time_is_over(self) -> None:
        clock, taken = Clock(0), []
        for thing in in_time("abcde", 3, clock):
            taken.append(thing)
            clock.pass_(1.5)
        assert taken == ["a", "b"]


class TestDeletedJobs:
    def test_their_folders_go_and_it_says_how_many(self, stage: Stage) -> None:
        kept = stage.submitted().directory
        folders = deleted_jobs(stage, 3)
        assert remove_folders(stage.platform) == 3
        assert kept.exists() and not any(folder.exists() for folder in folders)
        assert remove_folders(stage.platform) == 0, "it is not counted again"

    def test_two_that_run_at_once_do_the_work_of_one(self, stage: Stage) -> None:
        folders = deleted_jobs(stage, 8)
        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(remove_folders, stage.platform) for _ in range(2)]:
                each.result()
        assert not any(folder.exists() for folder in folders)

    def test_one_that_cannot_be_removed_keeps_no_other_from_going(
        self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck, *others = deleted_jobs(sqlite_stage, 3)
        rmtree = shutil.rmtree
        refusing = lambda path, **how: None if path == stuck else rmtree(path, **how)  # noqa: E731
        monkeypatch.setattr("edt_scheduler.periodic.retention.shutil.rmtree", refusing)  # root may remove anything
        with pytest.raises(HomeUnusable, match=r"1 job folder cannot be removed, edt-1 say"):
            remove_folders(sqlite_stage.platform)
        assert stuck.exists() and not any(folder.exists() for folder in others)

    def test_while_the_homes_id_cannot_be_read_nothing_is_removed(self, sqlite_stage: Stage) -> None:
        platform = sqlite_stage.platform
        pairing.pair(platform.database, platform.settings, 0.0)
        (folder,) = deleted_jobs(sqlite_stage, 1)
        file = platform.settings.home / pairing.ID_FILE
        kept = file.rename(file.with_name("kept"))
        file.mkdir()  # reading it is an error, as on a share that does not answer
        with pytest.raises(HomeUnusable, match="home-id cannot be read"):
            remove_folders(platform)
        assert folder.exists()
        file.rmdir()
        kept.rename(file)
        assert remove_folders(platform) == 1
        assert not folder.exists()


class TestLeftovers:
    def test_a_folder_of_no_known_job_is_set_aside_and_counted(self, stage: Stage) -> None:
        folder = stage.platform.settings.jobs / "edt-7"
        (folder / "model").mkdir(parents=True)
        assert sweep_leftovers(stage.platform) == 1
        assert not folder.exists()
        assert sweep_leftovers(stage.platform) == 0


class TestBacklogs:
    """What a scheduler that was away for long finds is forgotten in batches, to the end."""

    def test_changes(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edt_scheduler.periodic.sweeping.BATCH_ROWS", 2)
        for _ in range(4):
            stage.submit()
        cursor = history.newest_change(stage.platform)
        with stage.platform.database.transaction() as tx:
            count = tx.execute(text("SELECT count(*) FROM changes WHERE id <> 0")).scalar_one()
            tx.execute(text("UPDATE changes SET time = time - :age"), {"age": changes.KEPT_SECONDS + 1})
        assert count > 2
        assert sweep_changes(stage.platform) == count
        assert history.changes_since(stage.platform, cursor).cursor == cursor, "who has seen all has missed nothing"

    def test_idempotency_keys(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edt_scheduler.store.queries.BATCH_ROWS", 2)
        with stage.platform.database.transaction() as tx:
            user = tx.execute(text("SELECT min(id) FROM users")).scalar_one()
            for number in range(5):
                idempotency.put(tx, user, IdempotentRequest(f"key-{number}", "0" * 64), "edt-1", stage.clock() + number)
        stage.clock.pass_(KEPT_SECONDS + 3)
        assert sweep_keys(stage.platform) == 4
        stage.clock.pass_(1)
        assert sweep_keys(stage.platform) == 1


_SLOW = """
import sys, time
from pathlib import Path
from edt_scheduler.periodic import tasks, worker

def quick(_):
    Path(sys.argv[3]).touch()
    return 1

worker.TASKS = (
    tasks.Task("edt.slow", "things done", 30, 1, lambda _: time.sleep(600)),
    tasks.Task("edt.quick", "things done", 30, 60, quick),
)
sys.exit(worker.main(sys.argv[1:3]))
"""


@pytest.mark.extended
def test_a_task_that_takes_longer_than_its_limit_is_killed_and_the_next_one_runs(
    sqlite_stage: Stage, valkey: str, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    done, log = tmp_path / "done", tmp_path / "log"
    home = sqlite_stage.platform.settings.home
    with log.open("wb") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-c", _SLOW, str(os.getpid()), str(writing), str(done)],
            env={**os.environ, "EDT_BROKER_URL": valkey, "EDT_HOME": str(home)},
            stderr=errors,
            pass_fds=(writing,),
            process_group=0,
        )
    try:
        app = celery_app(valkey, sends=True)
        for name in ("edt.slow", "edt.quick"):
            app.send_task(name, queue=TASKS_QUEUE)
        app.close()
        until(done.exists)
        until(lambda: "edt.quick: 1 things done" in log.read_text())
        until(lambda: "Hard time limit (1s) exceeded for edt.slow" in log.read_text())
        heard = b""
        while not heard.endswith(b"ended edt.quick\n"):
            heard += os.read(reading, 1000)
        assert heard == b"begun edt.slow\nbegun edt.quick\nended edt.quick\n"
    finally:  # as the scheduler ends it: a worker whose pool was killed may take long to end in its own way
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    for each in (reading, writing):
        os.close(each)
