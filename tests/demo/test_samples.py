"""Counting samples from the engines' record."""

from __future__ import annotations

import json
from pathlib import Path

from edt_demo.samples import Gap, count

EPOCHS, SAMPLES, WORKERS = 2, 12, 2


def write(folder: Path, skip: tuple[int, int] | None = None, twice: tuple[int, int] | None = None) -> None:
    """A record of two epochs of three steps, written by two engines; ``skip`` and ``twice``: (step, worker)."""
    for worker in range(WORKERS):
        lines = []
        for step in range(6):
            start = step % 3 * 4 + worker * 2
            line = json.dumps(["try", step // 3, step, 0, worker, [start, start + 1]])
            lines += [line] * (0 if (step, worker) == skip else 2 if (step, worker) == twice else 1)
            lines.append(json.dumps(["commit", step, 0]))
        (folder / f"samples-1-{worker}.jsonl").write_text("\n".join(lines) + "\n")


def test_a_whole_training_has_nothing_lost_and_nothing_repeated(tmp_path: Path) -> None:
    write(tmp_path)
    found = count(tmp_path, samples=SAMPLES, epochs=EPOCHS, micro_batches=WORKERS)
    assert (found.trained, found.lost, found.repeated, found.exact) == (24, 0, 0, True)
    assert found.in_words() == "24 of 24 samples trained on, 0 lost, 0 repeated"


def test_a_skipped_micro_batch_is_named_by_step_and_samples(tmp_path: Path) -> None:
    write(tmp_path, skip=(4, 1))
    found = count(tmp_path, samples=SAMPLES, epochs=EPOCHS, micro_batches=WORKERS)
    assert found.gaps == (Gap(epoch=2, steps=(5,), samples=(6, 7)),)
    assert found.in_words() == "epoch 2, step 5: samples 6, 7 were lost"


def test_a_step_that_is_missing_altogether_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "samples-1-0.jsonl").write_text(
        '["try", 0, 0, 0, 0, [0, 1]]\n["commit", 0, 0]\n["try", 0, 2, 0, 0, [4, 5]]\n["commit", 2, 0]\n'
    )
    found = count(tmp_path, samples=6, epochs=1, micro_batches=1)
    assert found.gaps == (Gap(epoch=1, steps=(2,), samples=(2, 3)),)


def test_a_sample_that_was_trained_on_twice_is_counted(tmp_path: Path) -> None:
    write(tmp_path, twice=(1, 0))
    found = count(tmp_path, samples=SAMPLES, epochs=EPOCHS, micro_batches=WORKERS)
    assert (found.lost, found.repeated, found.exact) == (0, 2, False)


def test_a_step_that_was_tried_again_without_a_dead_engine_counts_once(tmp_path: Path) -> None:
    """Worker 1's engine dies in the step; worker 0's commits it in a second round that holds both micro-batches."""
    (tmp_path / "samples-1-0.jsonl").write_text(
        '["try", 0, 0, 0, 0, [0, 1]]\n["try", 0, 0, 1, 0, [0, 1]]\n["try", 0, 0, 1, 1, [2, 3]]\n["commit", 0, 1]\n'
    )
    (tmp_path / "samples-1-1.jsonl").write_text('["try", 0, 0, 0, 1, [2, 3]]\n["comm')
    assert count(tmp_path, samples=4, epochs=1, micro_batches=2).exact


def test_a_step_that_was_committed_in_two_ways_is_no_good_record(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / "samples-1-0.jsonl").open("a") as file:
        file.write('["commit", 5, 1]\n')
    found = count(tmp_path, samples=SAMPLES, epochs=EPOCHS, micro_batches=WORKERS)
    assert not found.exact
    assert found.in_words() == "samples-1-0.jsonl: this engine committed a step twice"


def test_no_record_at_all_is_not_taken_for_a_good_one(tmp_path: Path) -> None:
    found = count(tmp_path, samples=SAMPLES, epochs=1, micro_batches=WORKERS)
    assert not found.exact and found.lost == SAMPLES
