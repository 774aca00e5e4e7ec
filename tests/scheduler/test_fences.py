"""The fence file: written after what it stands for, before what it makes room for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_contract.attempt import FENCE_FILE
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.fence_files import FENCE_SECONDS, lowest, raise_to
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs
from edt_scheduler.plan.state import Blocking
from support.puppets import Stage


def test_an_attempt_that_opens_writes_its_fence(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    assert stage.fence(job) == 0
    stage.settle()
    spec = node.fetch()[job, 1].spec
    assert (Path(spec.checkpoint_dir) / FENCE_FILE).read_text() == "1\n"
    node.end((job, 1), ExitKind.LOST)
    stage.clock.pass_(1)
    stage.settle()
    assert stage.fence(job) == 2


def test_after_a_lost_node_the_file_comes_first_and_the_next_attempt_seconds_later(stage: Stage) -> None:
    job = _lose_its_only_node(stage)
    assert stage.fence(job) == 1, "what is not committed is not written"
    look(stage.platform)
    assert stage.fence(job) == 2
    waiting = stage.job(job).waiting
    assert waiting is not None
    assert waiting.blocking == Blocking.COOLDOWN
    stage.clock.pass_(FENCE_SECONDS - 0.5)
    stage.settle()
    assert stage.job(job).fence == 1
    stage.clock.pass_(0.5)
    stage.settle()
    assert stage.job(job).fence == 2


def test_the_seconds_count_from_the_file_not_from_the_decision(stage: Stage) -> None:
    job = _lose_its_only_node(stage)
    stage.clock.pass_(3600)  # the scheduler died in between
    look(stage.platform)
    assert (stage.fence(job), stage.job(job).fence) == (2, 1)
    stage.clock.pass_(FENCE_SECONDS)
    stage.settle()
    assert stage.job(job).fence == 2


def test_while_the_file_cannot_be_written_nothing_starts(sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _lose_its_only_node(sqlite_stage)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.home.fence_files.raise_to", refuse)
        for _ in range(3):
            sqlite_stage.clock.pass_(100)
            look(sqlite_stage.platform)
        assert sqlite_stage.job(job).fence == 1
        other = sqlite_stage.submit()
        look(sqlite_stage.platform)
        assert sqlite_stage.job(other).fence == 0, "nor does a first attempt"
    look(sqlite_stage.platform)
    sqlite_stage.clock.pass_(FENCE_SECONDS)
    sqlite_stage.settle()
    assert (sqlite_stage.job(job).fence, sqlite_stage.job(other).fence) == (2, 1)


def test_a_job_that_was_stopped_shuts_out_what_nobody_could_ask(stage: Stage) -> None:
    stage.node()
    job = stage.submit()
    stage.settle()
    execs.stop(stage.platform, job, viewer=stage.admin)
    look(stage.platform, stage.silence("n1"))
    assert stage.job(job).state is JobState.KILLED
    look(stage.platform)
    assert stage.fence(job) == 2
    assert not look(stage.platform)


def test_an_attempt_all_of_whose_supervisors_have_spoken_needs_no_wait(sqlite_stage: Stage) -> None:
    node = sqlite_stage.node()
    job = sqlite_stage.submit()
    sqlite_stage.settle()
    node.end((job, 1), ExitKind.LEFT)
    sqlite_stage.settle()
    assert sqlite_stage.job(job).fence == 2


def test_the_file_of_a_deleted_job_is_missed_by_nobody(sqlite_stage: Stage, tmp_path: Path) -> None:
    raise_to(tmp_path / "gone", 3)
    assert not (tmp_path / "gone").exists()


def test_a_fence_file_never_goes_down_and_what_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    raise_to(tmp_path, 4)
    raise_to(tmp_path, 2)
    assert lowest(tmp_path) == 4
    (tmp_path / FENCE_FILE).write_text("")
    raise_to(tmp_path, 2)
    assert lowest(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == [FENCE_FILE]


@pytest.mark.parametrize("name", [FENCE_FILE, f"{FENCE_FILE}.tmp.{os.getpid()}"], ids=["the file", "its draft"])
def test_what_a_job_puts_in_place_of_the_fence_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    other.write_text("9\n")
    for number, put in enumerate((lambda place: place.symlink_to(other), os.mkfifo)):
        checkpoints = tmp_path / f"checkpoint-{number}"
        checkpoints.mkdir()
        put(checkpoints / name)
        raise_to(checkpoints, 3)
        assert lowest(checkpoints) == 3
    assert other.read_text() == "9\n"


def test_a_scheduler_that_slept_with_an_older_number_in_its_hand_has_the_file_raised_once_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _lose_its_only_node(stage)

    def sleep_while_another_one_decides(checkpoints: Path, _: int) -> None:
        monkeypatch.undo()
        look(stage.platform)
        assert stage.fence(job) == 2
        (checkpoints / FENCE_FILE).write_text("1\n")  # what it had in its hand

    monkeypatch.setattr("edt_scheduler.home.fence_files.raise_to", sleep_while_another_one_decides)
    look(stage.platform)
    look(stage.platform)
    assert stage.fence(job) == 2
    assert not look(stage.platform)


def _lose_its_only_node(stage: Stage) -> str:
    """A job whose only node is not heard from; another node waits for it."""
    stage.node("n1")
    job = stage.submit()
    stage.settle()
    stage.puppets.clear()
    stage.node("n2")
    look(stage.platform, stage.silence("n1"))
    assert stage.job(job).state is JobState.PENDING
    return job
