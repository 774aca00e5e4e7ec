"""Files of the user's, while several engines write them and some of them die."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edt_contract.durable import DRAFT_PREFIX
from edt_runner.checkpoints.user_files import UserFiles, draft_of, sweep
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
