"""The sample record: tries, commits, rounds, attempts, and lines torn by a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edt_demo.sample_record import Entry, RecordError, audit, read
from edt_runner.engine import telemetry
from edt_runner.engine.telemetry import Recorder
from support.small_disk import small_disk


def samples(*indices: int) -> np.ndarray:
    return np.array(indices, dtype=np.int64)


def step(recorder: Recorder, number: int, generation: int, worker: int, *indices: int) -> None:
    recorder.hold(0, number, worker, samples(*indices))
    recorder.trying(number, generation)
    recorder.commit(number, generation)


def test_a_committed_step_is_made_of_what_was_tried_in_its_round(tmp_path: Path) -> None:
    for name, worker in (("5", 0), ("6", 1)):
        step(Recorder(str(tmp_path), 1, name), 0, 0, worker, worker * 2, worker * 2 + 1)
    assert read(tmp_path) == [Entry(0, 0, 0, (0, 1)), Entry(0, 0, 1, (2, 3))]
    assert [(found.lost, found.repeated) for found in audit(read(tmp_path), 4, 1)] == [((), ())]


def test_what_nobody_committed_does_not_count(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), 1, "5")
    recorder.hold(0, 0, 0, samples(0, 1))
    recorder.trying(0, 0)
    assert read(tmp_path) == []


def test_a_dead_engines_tries_count_if_anybody_committed_their_round(tmp_path: Path) -> None:
    dead, alive = Recorder(str(tmp_path), 1, "5"), Recorder(str(tmp_path), 1, "6")
    dead.hold(0, 0, 0, samples(0, 1))
    dead.trying(0, 0)
    step(alive, 0, 0, 1, 2, 3)
    assert [entry.micro_batch for entry in read(tmp_path)] == [0, 1]


def test_a_step_reduced_again_counts_as_its_committed_round(tmp_path: Path) -> None:
    dead, alive = Recorder(str(tmp_path), 1, "5"), Recorder(str(tmp_path), 1, "6")
    for recorder, worker in ((dead, 0), (alive, 1)):
        recorder.hold(0, 0, worker, samples(worker))
        recorder.trying(0, 0)
    alive.hold(0, 0, 0, samples(0))  # beside its own, which it kept
    alive.trying(0, 1)
    alive.commit(0, 1)
    assert read(tmp_path) == [Entry(0, 0, 0, (0,)), Entry(0, 0, 1, (1,))]


def test_what_is_not_kept_is_not_tried_again(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), 1, "5")
    for worker in range(5):
        recorder.hold(0, 0, worker, samples(worker))
    recorder.keep([1, 2, 3, 4, 9])
    recorder.keep([0, 1, 2, 9])
    recorder.hold(0, 0, 1, samples(10))  # computed anew: the later one counts
    recorder.trying(0, 3)
    recorder.commit(0, 3)
    recorder.hold(0, 1, 7, samples(7))
    recorder.keep([])
    recorder.trying(1, 3)
    recorder.commit(1, 3)
    assert read(tmp_path) == [Entry(0, 0, 1, (10,)), Entry(0, 0, 2, (2,))]


def test_the_newest_attempt_that_committed_a_step_counts(tmp_path: Path) -> None:
    """Ten attempts, so that names do not sort by number."""
    for fence in (9, 10):
        step(Recorder(str(tmp_path), fence, "5"), 0, 0, 0, fence)
    step(Recorder(str(tmp_path), 9, "6"), 1, 4, 0, 1)  # the newer did not come so far
    later = Recorder(str(tmp_path), 11, "7")
    later.hold(0, 0, 0, samples(11))
    later.trying(0, 0)  # the newest of all committed nothing
    assert read(tmp_path) == [Entry(0, 0, 0, (10,)), Entry(0, 1, 0, (1,))]


def test_the_only_engine_that_had_applied_a_round_may_die_with_it(tmp_path: Path) -> None:
    """The others reduce the step again; the dead one had begun the next."""
    dead, alive = Recorder(str(tmp_path), 2, "5"), Recorder(str(tmp_path), 2, "6")
    alive.hold(0, 3, 1, samples(1))
    alive.trying(3, 0)
    step(dead, 3, 0, 0, 0)
    dead.hold(0, 4, 0, samples(2))
    dead.trying(4, 0)
    alive.hold(0, 3, 0, samples(0))
    alive.trying(3, 1)
    alive.commit(3, 1)
    expected = [Entry(0, 3, 0, (0,)), Entry(0, 3, 1, (1,))]
    assert read(tmp_path) == expected
    step(alive, 4, 1, 0, 2)
    assert read(tmp_path) == [*expected, Entry(0, 4, 0, (2,))]


def test_a_step_committed_in_two_generations_that_engines_went_on_from_is_an_error(tmp_path: Path) -> None:
    for name, generation in (("5", 0), ("6", 1)):
        recorder = Recorder(str(tmp_path), 2, name)
        step(recorder, 3, generation, 0, 1)
        step(recorder, 4, 1, int(name), 2)
    with pytest.raises(RecordError, match="step 4 was committed in generations 0, 1 of attempt 2 by engines"):
        read(tmp_path)


def test_an_engine_that_committed_a_step_twice_is_named(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), 2, "5")
    step(recorder, 3, 0, 0, 1)
    step(recorder, 3, 1, 0, 1)
    with pytest.raises(RecordError, match=r"samples-2-5\.jsonl: this engine committed a step twice"):
        read(tmp_path)


def test_a_micro_batch_that_two_engines_gave_to_one_round_shows_as_repeated(tmp_path: Path) -> None:
    for name in ("5", "6"):
        step(Recorder(str(tmp_path), 1, name), 0, 0, 0, 0, 1)
    assert audit(read(tmp_path), 2, 1)[0].repeated == (0, 1)


def test_a_line_torn_at_the_end_of_a_file_is_passed_over(tmp_path: Path) -> None:
    step(Recorder(str(tmp_path), 1, "5"), 0, 0, 0, 0)
    step(Recorder(str(tmp_path), 1, "5"), 1, 0, 0, 1)
    path = tmp_path / "samples-1-5.jsonl"
    whole = path.read_bytes()
    found = []
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found.append(len(read(tmp_path)))
    assert found == sorted(found) and set(found) == {0, 1, 2}


def test_without_a_folder_nothing_is_held_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(None, 1, "5")
    step(recorder, 0, 0, 0, 1)
    recorder.keep([])
    recorder.keep([0])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_that_stays_full_costs_the_record_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_HELD_BYTES", 100)
    (tmp_path / "samples-1-5.jsonl").symlink_to("/dev/full")
    recorder = Recorder(str(tmp_path), 1, "5")
    for number in range(3):
        step(recorder, number, 0, 0, number)
    assert capsys.readouterr().err.count("the sample record ends here") == 1


@pytest.mark.tmpfs_mount
def test_on_a_disk_that_has_room_again_no_step_is_missing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 17) as disk:
        recorder = Recorder(str(disk.folder), 1, "5")
        disk.fill()
        for number in range(100):
            step(recorder, number, 0, 0, number)
        assert len(read(disk.folder)) < 100
        disk.make_room()
        step(recorder, 100, 0, 0, 100)
        assert len(read(disk.folder)) == 101


def test_commits_after_a_checkpoint_that_all_went_back_to_are_void(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), 1, "1")
    for generation, steps in ((1, (0, 1, 2)), (2, (1, 2, 3))):
        if generation == 2:
            recorder.go_back(1, 2)
        for step in steps:
            recorder.hold(0, step, 0, np.array([10 * generation + step]))
            recorder.trying(step, generation)
            recorder.commit(step, generation)
    assert [entry.samples for entry in read(tmp_path)] == [(10,), (21,), (22,), (23,)]


def test_commits_of_an_engine_that_had_left_before_all_went_back_are_void_too(tmp_path: Path) -> None:
    stays, left = Recorder(str(tmp_path), 1, "1"), Recorder(str(tmp_path), 1, "2")
    for number in range(4):
        for recorder, worker in ((stays, 0), (left, 1)):
            step(recorder, number, 1, worker, 10 + worker)
    stays.go_back(1, 3)
    for number in (1, 2):
        step(stays, number, 3, 0, 20)
    assert [(entry.step, *entry.samples) for entry in read(tmp_path)] == [(0, 10), (0, 11), (1, 20), (2, 20)]


def test_a_step_that_is_wrongly_committed_after_all_went_back_is_still_said(tmp_path: Path) -> None:
    for name, generation in (("1", 3), ("2", 4)):
        recorder = Recorder(str(tmp_path), 1, name)
        recorder.go_back(1, 3)
        for number in (1, 2):
            step(recorder, number, generation, 0, 20)
    with pytest.raises(RecordError, match="step 2 was committed in generations 3, 4 of attempt 1"):
        read(tmp_path)
