"""The scheduler's process: woken, ended, killed, standing by, refusing to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import JobState, Role
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import accounts, execs, fleet
from edt_scheduler.platform import Platform, open_platform
from edt_scheduler.settings import Settings
from support.puppets import Clock, Stage
from support.waiting import until


@dataclass
class SchedulerProcess:
    """Starts schedulers of one home, and is the API to them."""

    stage: Stage
    environ: dict[str, str]
    started: list[subprocess.Popen[str]]

    def start(self, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "edt_scheduler"],
            env={**os.environ, **self.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def decided(self, job: str) -> bool:
        return self.stage.job(job).state is not JobState.SUBMITTED


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SchedulerProcess]:
    settings = Settings(home=tmp_path / "home", database_url="", broker_url="")
    platform = open_platform(settings)
    fleet.register_node(
        platform, name="n1", host="h", cores=2, boot_id="b", incarnation="i", slots=[SlotSpec(str(n)) for n in range(9)]
    )
    admin = accounts.add_user(platform, "admin", "hash", Role.ADMIN)
    environ = {"EDT_HOME": str(settings.home), "EDT_TICK_SECONDS": "600", "EDT_BROKER_URL": ""}
    scheduler = SchedulerProcess(Stage(platform, Clock(time.time()), admin), environ, [])
    yield scheduler
    for process in scheduler.started:
        process.kill()
        process.communicate()
    platform.close()


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> float:
    """Wait for it; how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds
        time.sleep(0.005)
    return time.monotonic() - began


def listeners(url: str) -> int:
    """How many schedulers hear what is broadcast."""
    with redis.Redis(unix_socket_path=url.removeprefix("redis+socket://")) as client:
        return sum(int(each["psub"]) for each in client.client_list())


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def task_workers(pid: int) -> list[int]:
    """The worker of the periodic tasks, which a thread of the scheduler has started, and its pool's process."""
    found: list[int] = []
    below = [pid]
    while below:
        for file in Path(f"/proc/{below.pop()}/task").glob("*/children"):
            with suppress(OSError):
                below += [int(child) for child in file.read_text().split()]
        found += [child for child in below if b"edt_scheduler.periodic.worker" in command_line(child)]
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_notification_wakes_it_long_before_its_timer_and_its_worker_ends_with_it(
    scheduler: SchedulerProcess, valkey: str
) -> None:
    platform = scheduler.stage.platform
    connected = Platform(platform.database, Notifier(platform.database, valkey), platform.settings)
    stage = Stage(connected, scheduler.stage.clock, scheduler.stage.admin)
    process = scheduler.start(EDT_BROKER_URL=valkey)
    first = stage.submit()
    eventually(lambda: scheduler.decided(first))
    until(lambda: listeners(valkey) == 1)
    (worker,) = children(process.pid)
    waits = []
    for _ in range(3):
        job = stage.submit()
        waits.append(eventually(lambda job=job: scheduler.decided(job)))
    connected.notifier.close()
    assert sorted(waits)[1] < 30, "its timer is ten minutes away"
    process.kill()
    eventually(lambda: gone(worker))


def test_the_one_that_leads_hears_each_notification_though_another_stands_by_and_so_does_the_next(
    scheduler: SchedulerProcess, valkey: str
) -> None:
    platform = scheduler.stage.platform
    connected = Platform(platform.database, Notifier(platform.database, valkey), platform.settings)
    stage = Stage(connected, scheduler.stage.clock, scheduler.stage.admin)
    schedulers = []
    for words in ("deciding", "standing by"):
        process = scheduler.start(EDT_BROKER_URL=valkey)
        schedulers.append(process)
        assert process.stderr is not None and words in process.stderr.readline()
    until(lambda: listeners(valkey) == 2)

    def decides_what_is_submitted() -> None:
        for _ in range(3):
            job = stage.submit()
            eventually(lambda job=job: scheduler.decided(job))  # its timer is ten minutes away

    decides_what_is_submitted()
    leader, next_one = schedulers
    until(lambda: len(task_workers(leader.pid)) == 2)
    assert not task_workers(next_one.pid), "periodic tasks run where the decisions are made"
    leader.kill()
    assert next_one.stderr is not None and "deciding" in next_one.stderr.readline()
    decides_what_is_submitted()
    until(lambda: task_workers(next_one.pid))
    connected.notifier.close()


def test_sigterm_ends_it_and_its_workers_in_time_and_without_another_word(
    scheduler: SchedulerProcess, valkey: str
) -> None:
    process = scheduler.start(EDT_BROKER_URL=valkey, PYTHONWARNINGS="error")
    until(lambda: listeners(valkey) == 1 and len(task_workers(process.pid)) == 2)
    workers = [*children(process.pid), *task_workers(process.pid)]
    assert len(workers) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert process.stderr is not None
    log = process.stderr.read()
    assert all(gone(pid) for pid in workers)
    assert log == "INFO edt.scheduler: deciding, every 600 s and when notified\nINFO edt.scheduler: ended\n"


def test_periodic_tasks_run_in_a_worker_that_is_started_again_and_never_outlives_it(
    scheduler: SchedulerProcess, valkey: str
) -> None:
    job = scheduler.stage.submitted()
    execs.delete(scheduler.stage.platform, job.exec_id, viewer=scheduler.stage.admin)
    process = scheduler.start(EDT_BROKER_URL=valkey, EDT_DATABASE_PASSWORD="not-for-ps")
    until(lambda: len(task_workers(process.pid)) == 2)
    assert process.stderr is not None
    log = ""
    while "INFO edt.tasks: edt.remove-folders: 1 " not in log:
        log += process.stderr.readline()
    assert not job.directory.exists()
    worker, pool = task_workers(process.pid)
    assert not any(b"not-for-ps" in command_line(pid) for pid in (worker, pool))
    os.kill(worker, signal.SIGKILL)
    until(lambda: gone(worker) and gone(pool))
    until(lambda: len(task_workers(process.pid)) == 2)
    again = task_workers(process.pid)
    process.kill()
    until(lambda: all(gone(pid) for pid in again))
    log += process.stderr.read()
    assert "no worker takes" not in log
    assert "the periodic tasks' worker ended with -9; it starts again" in log


def test_without_a_broker_its_timer_does_all_and_a_second_one_stands_by_until_the_first_is_dead(
    scheduler: SchedulerProcess,
) -> None:
    first = scheduler.start(EDT_TICK_SECONDS="0.1")
    job = scheduler.stage.submit()
    eventually(lambda: scheduler.decided(job))
    second = scheduler.start(EDT_TICK_SECONDS="0.1")
    assert second.stderr is not None
    assert "standing by" in second.stderr.readline()
    first.kill()
    first.wait()
    assert "deciding" in second.stderr.readline()
    job = scheduler.stage.submit()
    eventually(lambda: scheduler.decided(job))


@pytest.mark.parametrize("obstacle", ["newer database", "home is a file", "a setting that cannot be read"])
def test_what_keeps_it_from_starting_is_one_sentence_and_exit_code_2(
    scheduler: SchedulerProcess, obstacle: str
) -> None:
    environ = {}
    if obstacle == "newer database":
        with scheduler.stage.platform.database.transaction() as tx:
            tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    elif obstacle == "home is a file":
        home = scheduler.stage.platform.settings.home / "file"
        home.touch()
        environ = {"EDT_HOME": str(home)}
    else:
        environ = {"EDT_TICK_SECONDS": "often"}
    _, log = scheduler.start(**environ).communicate(timeout=60)
    assert scheduler.started[-1].returncode == 2
    assert log.count("\n") == 1
