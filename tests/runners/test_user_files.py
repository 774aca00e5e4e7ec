"""Files of the user's, while several engines write them and some of them die."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edt_contract.durable import DRAFT_PREFIX
from edt_runner.checkpoints.snapshot import Snapshots
from edt_runner.checkpoints.user_files import Save, UserFiles, draft_of, sweep
from edt_runner.errors import NoRoom
from support.small_disk import small_disk


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_two_engines_that_write_the_same_file_at_a_time_both_succeed(tmp_path: Path) -> None:
    place = tmp_path / "train" / "model_epoch_1.weights.h5"
    with draft_of(place) as first, draft_of(place) as second:
        assert first != second
        assert first.name.endswith(place.name) and first.name.startswith(DRAFT_PREFIX)
        first.write_text("of the one that leaves")
        second.write_text("of the next")
    assert place.read_text() == "of the one that leaves"  # its block ended last
    assert names(tmp_path) == ["train", "train/model_epoch_1.weights.h5"]


def test_many_that_write_the_same_folder_at_a_time_leave_a_whole_one(tmp_path: Path) -> None:
    place, errors = tmp_path / "model_epoch_final", list[BaseException]()
    meet = threading.Barrier(4)

    def write(text: str) -> None:
        try:
            for _ in range(50):
                meet.wait(50)
                with draft_of(place) as draft:
                    draft.mkdir()
                    (draft / "saved_model.pb").write_text(text)
                    (draft / "variables").write_text(text)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert names(tmp_path) == ["model_epoch_final", "model_epoch_final/saved_model.pb", "model_epoch_final/variables"]
    assert (place / "saved_model.pb").read_text() == (place / "variables").read_text()


def test_an_error_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    place = tmp_path / "model_epoch_final.pth"
    place.write_text("before")
    with pytest.raises(ValueError, match="cannot be written"), draft_of(place) as draft:
        draft.write_text("ha")
        raise ValueError("cannot be written")
    assert names(tmp_path) == [place.name] and place.read_text() == "before"


def test_what_killed_writers_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / f"{DRAFT_PREFIX}0-model").mkdir()
    (tmp_path / f"{DRAFT_PREFIX}0-model" / "saved_model.pb").touch()
    (tmp_path / f"{DRAFT_PREFIX}1-model.keras").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "model.keras").touch()
    sweep(tmp_path)
    sweep(tmp_path / "not there")
    assert names(tmp_path) == [".hidden", "model.keras"]


class Killed(BaseException):
    """Nothing that comes after this is done."""


def write_folder(place: Path, text: str) -> None:
    with draft_of(place) as draft:
        draft.mkdir()
        (draft / "saved_model.pb").write_text(text)


def at_the_rename_into(place: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk, or a kill, at the instant when nothing is at ``place``."""
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if target == place and (self / "saved_model.pb").read_text() == "new":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)


def test_a_folder_is_put_back_where_the_disk_does_not_take_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model_epoch_final"
    write_folder(place, "before")
    at_the_rename_into(place, OSError(errno.EIO, "Input/output error"), monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        write_folder(place, "new")
    assert names(tmp_path) == [place.name, f"{place.name}/saved_model.pb"]
    assert (place / "saved_model.pb").read_text() == "before"


def test_a_folder_that_a_killed_writer_had_moved_away_is_put_back_by_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model_epoch_final"
    write_folder(place, "before")
    at_the_rename_into(place, Killed(), monkeypatch)
    with pytest.raises(Killed):
        write_folder(place, "new")
    assert not place.exists()
    sweep(tmp_path)
    assert names(tmp_path) == [place.name, f"{place.name}/saved_model.pb"]
    assert (place / "saved_model.pb").read_text() == "before"


def test_a_folder_that_was_moved_away_goes_where_the_new_one_is_in_its_place(tmp_path: Path) -> None:
    place, old = tmp_path / "model", tmp_path / f"{DRAFT_PREFIX}old-0123abcd-model"
    write_folder(place, "new")
    old.mkdir()
    sweep(tmp_path)
    assert names(tmp_path) == ["model", "model/saved_model.pb"]


# ── full disks ────────────────────────────────────────────────────────────────────────────────────────────────────
class Result:
    """What a training leaves to its user, by the framework's own writer; its clock is moved by waiting."""

    def __init__(self, folder: Path, patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EDT_ROOM_SECONDS", str(patience))
        self.now = 0.0
        self.at = dict[float, Callable[[], None]]()
        self.notes, self.reports = list[str](), list[str]()
        self.files = UserFiles(
            folder, self._save, self.reports.append, self.notes.append, clock=lambda: self.now, sleep=self._sleep
        )

    def _save(self, folder: Path, name: str) -> None:
        with draft_of(folder / f"{name}.pth") as draft:
            torch.save({"weight": torch.ones(20_000)}, draft)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.at.pop(self.now, lambda: None)()


@pytest.mark.tmpfs_mount
def test_the_final_files_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        result = Result(disk.folder, 300, monkeypatch)
        disk.fill()
        result.at[7.0] = disk.make_room
        result.files.write_final("model_epoch_final")
        assert result.now == 7.0
        assert torch.load(disk.folder / "model_epoch_final.pth", weights_only=True)["weight"].sum() == 20_000
        assert names(disk.folder) == ["model_epoch_final.pth"]
    assert set(result.reports[:-1]) == {"No space left on device"} and result.reports[-1] == ""
    assert len(result.notes) == 2 and "It is tried again for 300 s" in result.notes[0]


@pytest.mark.tmpfs_mount
def test_where_there_is_none_for_too_long_the_error_names_the_folder_and_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        result = Result(disk.folder, 3, monkeypatch)
        disk.fill()
        with pytest.raises(NoRoom, match=rf"{disk.folder} within 3 s: No space left on device \(0 bytes are free"):
            result.files.write_final("model_epoch_final")
        assert names(disk.folder) == ["what somebody else has put here"]


@pytest.mark.tmpfs_mount
def test_the_files_of_an_epoch_are_left_out_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        result = Result(disk.folder, 300, monkeypatch)
        result.files.write("model_epoch_1")
        disk.fill()
        result.files.write("model_epoch_2")
        disk.make_room()
        result.files.write("model_epoch_3")
        assert names(disk.folder) == ["model_epoch_1.pth", "model_epoch_3.pth"]
    assert result.now == 0.0
    assert len(result.notes) == 1 and result.notes[0].startswith("model_epoch_2 is left out")


def test_what_is_not_the_disks_fault_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").write_text("a file")
    result = Result(tmp_path / "folder", 300, monkeypatch)
    with pytest.raises(FileExistsError):
        result.files.write_final("model_epoch_final")
    assert result.reports == []


def test_only_the_newest_epochs_files_are_kept_and_another_trainings_later_ones_stay(tmp_path: Path) -> None:
    def save(folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.pth").write_text(name)

    (tmp_path / "model_epoch_9.pth").write_text("of an earlier training")
    files = UserFiles(tmp_path, save, lambda error: None, lambda text: None, keep_last=2)
    for name in ("model_epoch_1", "model_best", "model_epoch_2", "model_epoch_3"):
        files.write(name)
    files.write_final("model_epoch_final")
    assert sorted(path.stem for path in tmp_path.iterdir()) == [
        "model_best",
        "model_epoch_2",
        "model_epoch_3",
        "model_epoch_9",
        "model_epoch_final",
    ]


# ── while the training goes on ────────────────────────────────────────────────────────────────────────────────────
class Training:
    """A state of one number, whose copies and whose disk can be held up."""

    def __init__(self, folder: Path) -> None:
        self.weight, self.copies = 0, 0
        self.may_copy, self.may_write = threading.Event(), threading.Event()
        self.may_copy.set()
        self.may_write.set()
        self.error: Exception | None = None
        self.notes, self.there = list[str](), list[str]()
        self.folder = folder
        self.files = UserFiles(folder, self._save, lambda error: None, self.notes.append, export=lambda: self._copy)

    def step(self) -> None:
        self.files.wait_copied()
        self.weight += 1

    def write(self, name: str) -> None:
        self.files.write(name, lambda: self.there.append((self.folder / name).read_text()))

    def _copy(self) -> Save:
        assert self.may_copy.wait(60)
        self.copies += 1
        weight = self.weight
        return lambda folder, name: self._save(folder, name, weight)

    def _save(self, folder: Path, name: str, weight: int | None = None) -> None:
        assert self.may_write.wait(60)
        if self.error is not None:
            raise self.error
        with draft_of(folder / name) as draft:
            draft.write_text(str(self.weight if weight is None else weight))


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "train")


def test_files_hold_the_state_of_their_epochs_end_and_the_training_does_not_wait_for_the_disk(
    training: Training,
) -> None:
    training.may_write.clear()
    training.weight = 7
    training.write("model_epoch_1")
    training.write("model_best")
    training.step()
    training.step()
    assert (training.weight, training.there, training.files.under_way) == (9, [], True)
    training.may_write.set()
    training.files.finish()
    assert training.there == ["7", "7"]
    assert names(training.folder) == ["model_best", "model_epoch_1"]
    assert training.copies == 1
    assert not training.files.under_way


def test_the_state_waits_for_its_copy(training: Training) -> None:
    training.may_copy.clear()
    training.write("model_epoch_1")
    stepped = threading.Thread(target=training.step)
    stepped.start()
    stepped.join(0.05)
    assert stepped.is_alive() and training.weight == 0
    training.may_copy.set()
    stepped.join(30)
    training.files.finish()
    assert (training.weight, training.there) == (1, ["0"])


def test_there_is_one_copy_at_a_time_and_the_next_epoch_waits(training: Training) -> None:
    training.may_write.clear()
    training.write("model_epoch_1")
    training.step()
    ended = threading.Thread(target=training.write, args=("model_epoch_2",))
    ended.start()
    ended.join(0.05)
    assert ended.is_alive() and training.copies == 1
    training.may_write.set()
    ended.join(30)
    training.files.finish()
    assert training.there == ["0", "1"]


def test_the_final_files_come_after_those_under_way_and_are_there_when_the_call_returns(training: Training) -> None:
    training.write("model_epoch_1")
    training.step()
    training.files.write_final("model_epoch_final")
    assert (training.folder / "model_epoch_final").read_text() == "1"
    assert training.there == ["0"]


def test_the_second_engine_writes_what_the_first_may_not_have_finished(training: Training) -> None:
    training.files.hold([("model_epoch_1", None), ("model_best", lambda: training.there.append("best"))])
    training.step()
    training.step()
    assert not training.folder.exists()
    training.files.write_held()
    training.files.finish()
    assert [(training.folder / name).read_text() for name in ("model_epoch_1", "model_best")] == ["0", "0"]
    assert training.there == ["best"]
    training.files.write_held()  # once
    training.files.finish()
    assert training.there == ["best"]


def test_what_is_held_is_forgotten_at_the_next_epochs_end(training: Training) -> None:
    training.files.hold([("model_epoch_1", None)])
    training.step()
    training.files.hold([])
    training.files.write_held()
    training.files.finish()
    assert not training.folder.exists()


def test_files_that_the_disk_did_not_take_are_not_said_to_be_there(training: Training) -> None:
    training.error = OSError(errno.ENOSPC, "No space left on device")
    training.write("model_best")
    training.files.finish()
    assert training.there == [] and training.notes[0].startswith("model_best is left out")


def test_an_error_of_the_users_objects_is_raised_where_the_training_is(training: Training) -> None:
    training.error = TypeError("cannot pickle a lock")
    training.write("model_epoch_1")
    with pytest.raises(TypeError, match="cannot pickle"):
        training.files.finish()
    training.error = None
    training.write("model_epoch_2")
    training.files.finish()
    assert names(training.folder) == ["model_epoch_2"]


def test_a_copy_that_fails_holds_nobody_up(training: Training) -> None:
    def fail() -> Save:
        raise MemoryError

    files = UserFiles(training.folder, training._save, pytest.fail, pytest.fail, export=lambda: fail)
    files.write("model_epoch_1")
    with pytest.raises(MemoryError):
        files.finish()


def test_no_checkpoint_of_a_later_state_is_written_before_the_files(training: Training) -> None:
    """Else a job that starts again from it would never write them."""
    written, now = list[int](), [0.0]
    snapshots = Snapshots(
        10.0, lambda: None, lambda state: None, lambda offset, *_: written.append(offset), pytest.fail, lambda: now[0]
    )
    snapshots.go_behind(training.files)
    training.may_write.clear()
    snapshots.begin(1, {}, force=True)
    training.write("model_epoch_1")
    now[0] = 100.0
    snapshots.wait_copied()
    assert not snapshots.due()
    snapshots.begin(2, {})
    training.may_write.set()
    training.files.finish()
    snapshots.finish()
    assert snapshots.due() and written == [1]
    snapshots.begin(3, {})
    snapshots.finish()
    assert written == [1, 3]
