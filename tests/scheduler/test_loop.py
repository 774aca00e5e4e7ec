"""The scheduler's pass, and who may make it."""

from __future__ import annotations

import fcntl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edt_scheduler.decide.leader import _lock_file, lead
from edt_scheduler.decide.loop import Loop
from edt_scheduler.errors import AlreadyLeading
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.states import Health, JobState
from edt_scheduler.operations import execs, fleet
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from support.puppets import Clock, Stage
from support.waiting import until


def watch(loop: Loop, monotonic: Clock, seconds: int) -> None:
    """Look once a second."""
    for _ in range(seconds):
        monotonic.pass_(1)
        loop.once()


def test_a_silent_node_is_lost_after_its_lease_and_back_when_it_is_heard_from(sqlite_stage: Stage) -> None:
    stage, monotonic = sqlite_stage, Clock(0)
    node = stage.node()
    loop = Loop(stage.platform, monotonic)
    job = stage.submit()
    loop.once()
    node.obey()
    loop.once()
    watch(loop, monotonic, 30)
    assert fleet.node(stage.platform, "n1").health is Health.UP
    watch(loop, monotonic, 1)
    assert fleet.node(stage.platform, "n1").health is Health.LOST
    assert stage.job(job).state is JobState.PENDING
    assert stage.job(job).message == "node n1 was not heard from"
    node.obey()
    assert fleet.node(stage.platform, "n1").health is Health.UP
    loop.once()  # the fence file is written
    stage.clock.pass_(FENCE_SECONDS)
    loop.once()
    node.obey()
    assert (stage.job(job).state, stage.job(job).fence) == (JobState.RUNNING, 2)


def test_while_no_api_serves_no_node_is_taken_for_lost(sqlite_stage: Stage) -> None:
    """What nodes say goes through an API, so it may be that they speak and nobody hears."""
    stage, monotonic = sqlite_stage, Clock(0)
    stage.node()
    loop = Loop(stage.platform, monotonic)
    fleet.beat(stage.platform)
    watch(loop, monotonic, 600)
    assert fleet.node(stage.platform, "n1").health is Health.UP
    for _ in range(30):
        fleet.beat(stage.platform)
        watch(loop, monotonic, 1)
    assert fleet.node(stage.platform, "n1").health is Health.UP, "a whole lease from then on"
    fleet.beat(stage.platform)
    watch(loop, monotonic, 1)
    assert fleet.node(stage.platform, "n1").health is Health.LOST


def test_a_job_that_is_stopped_while_its_node_is_lost_is_over(sqlite_stage: Stage) -> None:
    stage, monotonic = sqlite_stage, Clock(0)
    stage.node()
    loop = Loop(stage.platform, monotonic)
    job = stage.submit()
    stage.settle()
    loop.once()
    execs.stop(stage.platform, job, viewer=stage.admin)
    assert stage.job(job).state is JobState.RUNNING
    watch(loop, monotonic, 31)
    assert stage.job(job).state is JobState.KILLED


def test_who_has_not_looked_for_a_while_cannot_say_who_was_silent(sqlite_stage: Stage) -> None:
    """A scheduler that was stopped, or whose database was away, gives every node a whole lease again."""
    stage, monotonic = sqlite_stage, Clock(0)
    stage.node()
    loop = Loop(stage.platform, monotonic)
    loop.once()
    monotonic.pass_(3600)
    loop.once()
    watch(loop, monotonic, 30)
    assert fleet.node(stage.platform, "n1").health is Health.UP
    watch(loop, monotonic, 1)
    assert fleet.node(stage.platform, "n1").health is Health.LOST


def _observe(loop: Loop, monotonic: Clock, seconds: int) -> None:
    """A decision takes so long. Meanwhile the loop's thread observes the leases."""
    for _ in range(seconds):
        monotonic.pass_(1)
        loop.silence.observe()


def test_a_node_that_speaks_while_a_decision_takes_long_is_not_lost(sqlite_stage: Stage) -> None:
    stage, monotonic = sqlite_stage, Clock(0)
    node = stage.node()
    loop = Loop(stage.platform, monotonic)
    for _ in range(5):
        loop.once()
        _observe(loop, monotonic, 20)
        node.obey()
        _observe(loop, monotonic, 20)
    loop.once()
    assert fleet.node(stage.platform, "n1").health is Health.UP


def test_a_node_that_is_silent_is_lost_however_long_decisions_take(sqlite_stage: Stage) -> None:
    stage, monotonic = sqlite_stage, Clock(0)
    stage.node()
    loop = Loop(stage.platform, monotonic)
    loop.once()
    _observe(loop, monotonic, 20)
    loop.once()
    assert fleet.node(stage.platform, "n1").health is Health.UP
    _observe(loop, monotonic, 20)
    loop.once()
    assert fleet.node(stage.platform, "n1").health is Health.LOST


def test_a_thread_observes_the_leases_while_the_scheduler_decides(sqlite_stage: Stage) -> None:
    looked: list[float] = []

    def monotonic() -> float:
        looked.append(time.monotonic())
        return looked[-1]

    short = sqlite_stage.platform.settings.model_copy(update={"lease_seconds": 0.04})
    loop = Loop(replace(sqlite_stage.platform, settings=short), monotonic)
    with loop.silence.observed():
        until(lambda: len(looked) > 3, what="it has looked several times")
    observed = len(looked)
    time.sleep(0.05)
    assert len(looked) == observed, "and it ends with the block"


def test_a_database_that_cannot_be_asked_is_asked_again_later(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Database("sqlite:////nonexistent/edt.db")
    loop = Loop(replace(sqlite_stage.platform, database=broken), Clock(0))
    assert not loop.once()
    assert "trying again" in caplog.text


def test_one_decides_at_a_time_and_the_next_one_when_it_has_gone(stage: Stage) -> None:
    settings: Settings = stage.platform.settings
    with lead(settings) as leads:
        assert leads()
        with pytest.raises(AlreadyLeading), lead(settings):
            pass
    with lead(settings):
        pass


def test_who_comes_just_after_the_one_that_decided_decides(stage: Stage) -> None:
    for _ in range(100):  # the server of PostgreSQL ends a closed session a moment later
        with lead(stage.platform.settings) as leads:
            assert leads()


def test_who_wants_the_home_alone_waits_for_its_scheduler_whatever_the_database(stage: Stage, tmp_path: Path) -> None:
    settings: Settings = stage.platform.settings
    other = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'other.db'}"})
    with lead(settings), pytest.raises(AlreadyLeading), lead(other, home_alone=True):
        pass
    with lead(other, home_alone=True), pytest.raises(AlreadyLeading), lead(settings):
        pass
    with lead(settings), pytest.raises(AlreadyLeading), lead(settings, home_alone=True):
        pass


def test_a_lock_that_a_vanished_machine_left_on_the_home_keeps_no_scheduler_of_postgresql_from_deciding(
    tmp_path: Path, postgres_url: str
) -> None:
    settings = Settings(home=tmp_path, database_url=postgres_url, broker_url="")
    (tmp_path / "run").mkdir()
    with _lock_file(settings, fcntl.LOCK_SH), lead(settings) as leads:
        assert leads()


def test_a_home_that_cannot_be_locked_is_led_by_the_session_of_postgresql(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(home=tmp_path, database_url=postgres_url, broker_url="")
    (tmp_path / "run" / "scheduler.lock").mkdir(parents=True)
    with lead(settings) as leads, pytest.raises(AlreadyLeading), lead(settings):
        assert leads()
    assert "is not locked" in caplog.text
