"""Disks that are full while a training runs: it goes on, says so, and all is there when there is room again."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.checkpoints import checkpoint
from support.gate import GateKeeper
from support.nursery import Nursery
from support.small_disk import SmallDisk, small_disk
from support.training import Elastic, spec_for
from support.waiting import until

pytestmark = pytest.mark.tmpfs_mount
Attempt = Callable[..., Elastic]
EPOCHS, STEPS_AN_EPOCH = 8, 15
OPTIONS = ("--epochs", EPOCHS, "--recovery", 0.5)
ROOM = 6 << 20


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of this training on a disk that has room."""
    spec = spec_for(tmp_path_factory.mktemp("undisturbed"), "conv", *OPTIONS)
    with Elastic(spec, nursery.start) as training:
        training.hold([1])
        return str(training.finish()["digest"])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The job's folder."""
    return tmp_path / "job"


@pytest.fixture
def training(attempt: Attempt, tmp_path: Path, job: Path) -> Iterator[Elastic]:
    """Not begun; gate and sample record are on another disk."""
    places = {"TEST_GATE": str(tmp_path / "gate"), "EDT_SAMPLE_RECORD": str(tmp_path / "samples")}
    yield attempt("conv", *OPTIONS, environ={**places, "EDT_ROOM_SECONDS": "60"})


def reported(training: Elastic, place: str) -> list[bool]:
    """For each report of this place whether it cannot be written."""
    return [bool(body["error"]) for body in training.kinds(ReportKind.STORAGE) if body["place"] == place]


def gone(training: Elastic) -> dict[int, str]:
    """How each engine that is gone has ended."""
    return {body["allocation"]: body["kind"] for body in training.kinds(ReportKind.ENGINE_GONE)}


def pid_of(training: Elastic, engine: int) -> int:
    started = training.kinds(ReportKind.ENGINE_STARTED)
    return next(int(body["pid"]) for body in started if body["allocation"] == engine)


def go_on_over(disk: SmallDisk, training: Elastic, place: str) -> None:
    """Steps, a join and a death while the disk is full, until that is reported; then there is room until that is."""
    training.settle([1, 2])
    disk.fill()
    training.settle([1, 2, 3])
    os.kill(pid_of(training, 2), signal.SIGKILL)
    training.gate.until(lambda: training.training() == {1, 3}, sparing=True)
    training.gate.until(lambda: reported(training, place) == [True])
    training.gate.allow(training.gate.allowed + 5)
    training.gate.close()
    disk.make_room()
    training.gate.until(lambda: reported(training, place) == [True, False])


def lines(training: Elastic) -> list[int]:
    """The steps in the log that WMLA's tools read."""
    return [int(step) for step in re.findall(r"Train,.*Global steps: (\d+)", (training.log_dir / "stdout").read_text())]


@pytest.mark.parametrize(
    ("folder", "place"), [("spool", "spool"), ("checkpoint", "checkpoints"), ("log", "logs"), (".", "checkpoints")]
)
def test_a_training_goes_on_over_a_full_disk_and_nothing_is_missing_afterwards(
    training: Elastic, job: Path, undisturbed: str, folder: str, place: str
) -> None:
    """Of its reports, of its checkpoints, of its logs; of the job's whole folder."""
    with small_disk(job / folder, ROOM) as disk, training:
        go_on_over(disk, training, place)
        end = training.finish()
        assert (end["kind"], end["digest"]) == ("finished", undisturbed)
        numbers = [report.seq for report in training.supervisor.reports]
        assert numbers == list(range(1, len(numbers) + 1))
        assert gone(training)[2] == "lost"
        assert lines(training) == list(range(1, EPOCHS * STEPS_AN_EPOCH + 1))
        told = (training.log_dir / "training.log").read_text()
        validated = re.findall(r"epoch (\d+)/\d+ .* val_loss", told)
        assert [int(epoch) for epoch in validated] == list(range(1, EPOCHS + 1))
        events = EventAccumulator(str(job / "tensorboard/validation")).Reload().Scalars("loss")
        assert [event.step for event in events] == [epoch * STEPS_AN_EPOCH for epoch in range(1, EPOCHS + 1)]
        newest = checkpoint.newest(Path(training.spec.checkpoint_dir))
        assert newest is not None and not list(Path(training.spec.checkpoint_dir).glob(".at-*"))
        assert (job / "model/train/model_epoch_final.pth").exists()
        audits = record.audit(record.read(training.sample_record), samples=237, epochs=EPOCHS)
        assert all((audit.lost, audit.repeated) == ((), ()) for audit in audits)
        assert "the code behind train() runs once" in (training.log_dir / "driver.out").read_text()


def test_the_trained_model_waits_for_room(training: Elastic, job: Path, undisturbed: str) -> None:
    with small_disk(job / "model", 1 << 20) as disk, training:
        training.settle([1, 2])
        disk.fill()
        training.gate.open()
        log = training.log_dir / "driver.err"
        until(lambda: "model_epoch_final cannot be written" in log.read_text(), 60, "it waits")
        assert reported(training, "model") == [True] and not training.over()
        disk.make_room()
        end = training.supervisor.ended()
        assert (end["kind"], end["digest"]) == ("finished", undisturbed)
        assert reported(training, "model") == [True, False]
        assert (job / "model/train/model_epoch_final.pth").exists()
        assert "model_epoch_7 is left out" in log.read_text() and "model_epoch_final is written" in log.read_text()


def test_where_it_waits_too_long_the_attempt_is_lost_and_the_next_one_writes_it(
    attempt: Attempt, job: Path, undisturbed: str
) -> None:
    with small_disk(job / "model", 1 << 20) as disk:
        with attempt("conv", *OPTIONS, environ={"EDT_ROOM_SECONDS": "0.5"}) as training:
            training.settle([1])
            disk.fill()
            end = training.finish()
            (gone,) = training.kinds(ReportKind.ENGINE_GONE)
        assert end["kind"] == gone["kind"] == "lost"
        assert f"could not be written to {job}/model/train within 0.5 s: No space left on device" in gone["message"]
        disk.make_room()
        with attempt("conv", *OPTIONS, fence=2) as training:
            training.hold([2])
            assert training.finish()["digest"] == undisturbed
        assert (job / "model/train/model_epoch_final.pth").exists()


def test_a_supervisor_that_has_room_for_no_report_waits_with_its_last_one(training: Elastic, job: Path) -> None:
    """Its disk is full from the first report on, without room that was kept for it."""
    with small_disk(job / "spool", 1 << 18) as disk, training:
        until(lambda: training.happened(ReportKind.ATTEMPT_STARTED), 30, "it has begun")
        os.truncate(job / "spool" / "reports.jsonl", (job / "spool" / "reports.jsonl").stat().st_size)
        disk.fill()
        training.gate.open()
        training.hold([1])
        model = job / "model/train/model_epoch_final.pth"
        until(model.exists, 60, "it has trained")
        disk.make_room()
        end = training.supervisor.ended()
        numbers = [report.seq for report in training.supervisor.reports]
        assert end["kind"] == "finished" and numbers == list(range(1, len(numbers) + 1))
        assert gone(training) == {1: "finished"}


def test_one_that_cannot_begin_says_so_by_its_exit_status(attempt: Attempt, job: Path) -> None:
    with small_disk(job / "spool", 1 << 17) as disk:
        disk.fill()
        with attempt("conv") as training:
            training.supervisor.process.wait(30)
        assert not (job / "spool" / "attempt.json").exists()


@pytest.fixture(autouse=True)
def _a_gate_where_there_is_room(tmp_path: Path) -> None:
    GateKeeper(tmp_path / "gate")
