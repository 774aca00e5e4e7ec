"""The writer's lock is held over the database alone: the home may lie on another machine, and stand still."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.decide.loop import Loop
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs
from edt_scheduler.periodic.sweeping import Leftovers
from edt_scheduler.periodic.tasks import TASKS
from edt_scheduler.platform import pairing
from edt_scheduler.store import reservations
from support.puppets import Clock, Stage
from support.untouched import guarded


def test_no_file_of_the_home_is_touched_by_who_holds_the_writers_lock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, settings = stage.platform, stage.platform.settings
    pairing.pair(platform.database, settings, 0.0)  # once in a home's life its id is written under the lock
    with guarded(settings.home, monkeypatch):
        node = stage.node()
        finished, stopped, deleted = (stage.submit(workers=1) for _ in range(3))
        (settings.jobs / "edt-4").mkdir()  # which a submit must not take
        assert stage.submit(workers=1) == "edt-5"
        stage.settle()
        node.end((finished, 1), ExitKind.FINISHED)
        execs.stop(platform, stopped, viewer=stage.admin)
        execs.delete(platform, deleted, viewer=stage.admin)
        stage.settle()
        assert stage.job(finished).state is JobState.FINISHED
        look(platform, stage.silence("n1"))  # its fence file is due
        look(platform)
        stage.clock.pass_(FENCE_SECONDS)
        look(platform)
        for task in TASKS:
            task.work(platform)
        stage.clock.pass_(reservations.KEPT_SECONDS)
        Leftovers(platform).sweep()
        Loop(platform, Clock(0)).once()
        execs.delete_all(platform, viewer=stage.admin)
        pairing.adopt(platform.database, settings, 0.0)
    assert (settings.lost_found / "edt-4" / "edt-4").is_dir()
    assert stage.fence("edt-5") == 2
    assert not (settings.jobs / deleted).exists()


@pytest.mark.parametrize(
    "touch",
    [
        lambda home: (home / "new").mkdir(exist_ok=True),
        lambda home: (home / "edt.txt").write_text("x"),
        lambda home: list(home.iterdir()),
        lambda home: (home / "run").exists(),
        lambda home: os.fsync(os.open("/", os.O_RDONLY)),
    ],
    ids=["made", "written", "listed", "looked-at", "synced"],
)
def test_the_guard_sees_what_is_touched(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, touch: Callable[[Path], object]
) -> None:
    home = sqlite_stage.platform.settings.home
    with guarded(home, monkeypatch):
        touch(home)
    with (
        pytest.raises(AssertionError, match="touched under the writer's lock"),
        guarded(home, monkeypatch),
        sqlite_stage.platform.database.transaction(),
    ):
        touch(home)
