"""Files of the user's, while several engines write them and some of them die."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edt_runner.contract import DRAFT_PREFIX
from edt_runner.user_files import draft_of, sweep


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
