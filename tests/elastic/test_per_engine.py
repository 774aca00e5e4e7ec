"""The global batch follows the engines: one micro-batch each, every sample once an epoch, and a history of sizes that
can be done again with the same bits."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.schedule import Schedule
from support.crashes import arm, assert_all_counted_once, crashed, crashing, cut_off, gone, losses
from support.nursery import Nursery
from support.training import Both, Elastic, cases, spec_for, with_pytorch_first
from support.waiting import until

Attempt = Callable[..., Elastic]
FOLLOWS: tuple[object, ...] = ("conv", "--scaling", "per_engine")
SCHEDULE = Schedule(237, 37, micro_batches=1, batch_size=4, epochs=2, follows_engines=True)
"""Of the script ``conv``: 60 micro-batches an epoch, the last two of 3 and 2 samples, and 10 of its validation."""


@dataclass(frozen=True)
class History:
    """A training that was resized, as it ended."""

    digest: str
    widths: list[tuple[int, int]]
    """(step, micro-batches)"""
    samples: Path
    known: dict[str, Any]
    elog: str


def changes(widths: list[tuple[int, int]]) -> list[list[int]]:
    """The same by position, as EDT_EMULATE takes it."""
    positions = {SCHEDULE.at(position).training_steps_before: position for position in reversed(range(SCHEDULE.length))}
    by_step = [(positions[step], width) for step, width in widths]
    kept = [by_step[0], *(pair for before, pair in itertools.pairwise(by_step) if pair[1] != before[1])]
    return [[position, width] for position, width in kept]


def emulated(attempt: Attempt, tmp_path: Path, widths: list[tuple[int, int]], engines: int = 1) -> str:
    """Digest of the script, which asks for a fixed batch itself, under these widths."""
    file = tmp_path / "emulation.json"
    file.write_text(json.dumps({"widths": changes(widths), "lr_rule": None}))
    with attempt("conv", folder=f"emulated-{engines}", environ={"EDT_EMULATE": str(file)}) as training:
        training.settle(range(1, engines + 1))
        end = training.finish()
        assert record.widths(training.sample_record) == widths
        assert_all_counted_once(training, epochs=2)
    assert end["kind"] == "finished", end
    return str(end["digest"])


def counted(training: Elastic, width: int) -> None:
    """Let steps through until one was as wide: a joining engine's first has nothing of its own."""
    training.gate.until(lambda: width in dict(record.widths(training.sample_record)).values())


_histories: dict[str, History] = {}


@pytest.fixture
def resized(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory, framework: str) -> History:
    """1 → 2 → 3 → 1 engines; with TensorFlow, whose processes take their time, 1 → 2 → 1. Trained once a session."""
    if framework not in _histories:
        _histories[framework] = history(nursery, tmp_path_factory.mktemp("resized"), framework)
    return _histories[framework]


def history(nursery: Nursery, folder: Path, framework: str) -> History:
    sizes = ([1], [1, 2], [1, 2, 3], [3]) if framework == "pytorch" else ([1], [1, 2], [2])
    spec = spec_for(folder, *FOLLOWS, framework=framework)
    with Elastic(spec, nursery.start) as training:
        for engines in sizes:
            training.settle(engines)
            counted(training, len(engines))
        end = training.finish()
        assert end["kind"] == "finished", end
        known = training.kinds(ReportKind.ENGINES_KNOWN)[-1]
        log = (training.log_dir / "stdout").read_text()
        widths = record.widths(training.sample_record)
    assert {width for _, width in widths} == set(map(len, sizes))
    return History(str(end["digest"]), widths, training.sample_record, known, log)


@with_pytorch_first
def test_every_sample_counts_once_an_epoch_whatever_the_engines_are(resized: History) -> None:
    steps = [step for step, _ in resized.widths]
    assert steps == [0, *(step + width for step, width in resized.widths[:-1])]
    assert sum(resized.widths[-1]) == SCHEDULE.steps == 120
    audits = record.audit(record.read(resized.samples), samples=237, epochs=2)
    assert [(audit.lost, audit.repeated) for audit in audits] == [((), ()), ((), ())]


@cases("engines", [Both(1), (2,)])
def test_the_same_history_on_any_number_of_engines_gives_the_same_bits(
    attempt: Attempt, tmp_path: Path, resized: History, engines: int
) -> None:
    assert emulated(attempt, tmp_path, resized.widths, engines) == resized.digest


@with_pytorch_first
def test_steps_count_micro_batches_and_an_epoch_can_use_as_many_engines_as_it_has(resized: History) -> None:
    assert (resized.known["engines"], resized.known["steps_total"]) == (60, 120)  # of an epoch, of the training
    assert f"Global steps: {SCHEDULE.steps}" in resized.elog
    wide = next(step + width for step, width in resized.widths if width > 1)
    assert f"Global steps: {wide}" in resized.elog


def test_a_training_that_begins_wide_is_logged_behind_an_earlier_one(attempt: Attempt, tmp_path: Path) -> None:
    file = tmp_path / "emulation.json"
    file.write_text(json.dumps({"widths": [[0, 4]]}))
    with attempt("conv", environ={"EDT_EMULATE": str(file)}) as training:
        training.log_dir.mkdir()
        log = training.log_dir / "stdout"
        log.write_text(f"[2026-01-01 00:00:00] Train,\tTimestamp: 1,\tGlobal steps: {SCHEDULE.steps}\n")
        training.settle([1])
        assert training.finish()["kind"] == "finished"
        steps = [int(step) for step in re.findall(r"Train,.*Global steps: (\d+)", log.read_text())]
    assert steps == [SCHEDULE.steps, *range(4, SCHEDULE.steps + 1, 4)]


def test_a_kill_in_mid_step_loses_and_repeats_nothing(attempt: Attempt, tmp_path: Path) -> None:
    """The two that are left do the three micro-batches; from the next step on there are two."""
    place = "engine.before-gather#2"  # by then the others have computed theirs
    with attempt(*FOLLOWS, environ=crashing(tmp_path, place, armed=False)) as training:
        training.settle([1, 2, 3])
        counted(training, 3)
        arm(training)
        end = training.finish()
        assert crashed(training) and end["kind"] == "finished"
        assert [(loss.workers, loss.recomputed) for loss in losses(training)] == [(2, 1)]
        assert_all_counted_once(training, epochs=2)
        widths = record.widths(training.sample_record)
        lost_at = training.kinds(ReportKind.RESIZED)[-1]["step"]
    assert dict(widths)[lost_at] == 3 and dict(widths)[lost_at + 3] == 2
    assert emulated(attempt, tmp_path, widths) == end["digest"]


@pytest.mark.parametrize("past", [0, 62], ids=["first-epoch", "second-epoch"])
def test_an_engine_that_is_a_step_behind_catches_up_by_the_width_of_that_step(
    attempt: Attempt, tmp_path: Path, past: int
) -> None:
    """Two of three have applied it; the third was cut off before it could."""
    now = f"{tmp_path / 'now'}-"
    main = cut_off(tmp_path, "pytorch", 0, 3)
    main.write_text(main.read_text().replace("page.offset == 0", f"os.path.exists({now!r} + str(page.offset))"))
    with attempt(main, *FOLLOWS[1:]) as training:
        training.settle([1, 2, 3])
        counted(training, 3)
        training.gate.until(lambda: training.gate.reached() > past)
        training.gate.close()
        coming = max(
            at for at in range(SCHEDULE.length) if SCHEDULE.at(at).training_steps_before == training.gate.reached()
        )
        Path(f"{now}{coming}").touch()  # some may still be in the step before
        end = training.finish()
        assert (tmp_path / "once-3").exists() and end["kind"] == "finished"
        assert set(gone(training).values()) == {"finished"}  # also the third
        assert_all_counted_once(training, epochs=2)
        widths = record.widths(training.sample_record)
    assert emulated(attempt, tmp_path, widths) == end["digest"]


def test_an_attempt_with_another_number_of_engines_goes_on_from_a_checkpoint_in_mid_epoch(attempt: Attempt) -> None:
    with attempt(*FOLLOWS) as training:
        training.settle([1, 2])
        training.hold([])
        training.gate.until(training.over, sparing=True)
        left_at = training.kinds(ReportKind.CHECKPOINTED)[-1]["step"]
    assert 0 < left_at < SCHEDULE.steps_per_epoch
    with attempt(*FOLLOWS, fence=2) as training:
        training.settle([4, 5, 6])
        assert training.finish()["kind"] == "finished"
        assert f"Resuming from step {left_at} of 120" in (training.log_dir / "driver.err").read_text()
        assert_all_counted_once(training, epochs=2)
        assert {width for step, width in record.widths(training.sample_record) if step > left_at} >= {3}


def test_steps_after_the_checkpoint_that_an_attempt_began_at_are_void(attempt: Attempt, tmp_path: Path) -> None:
    """All engines die at once; the next attempt cuts the epoch into other steps."""
    seldom = ("--recovery", 600)  # the only checkpoint is the epoch's end
    with attempt(*FOLLOWS, *seldom) as training:
        training.settle([1, 2, 3])
        training.gate.allow(61)
        training.gate.close()
        until(lambda: training.happened(ReportKind.CHECKPOINTED), 60, "the epoch's checkpoint is on disk")
        training.gate.allow(70)
        training.gate.close()
        for started in training.kinds(ReportKind.ENGINE_STARTED):
            os.kill(started["pid"], signal.SIGKILL)
        training.finish()
        assert max(step for step, _ in record.widths(training.sample_record)) > 60
    with attempt(*FOLLOWS, *seldom, fence=2) as training:
        training.settle([4])
        training.settle([4, 5])
        end = training.finish()
        assert "Resuming from step 60 of 120" in (training.log_dir / "driver.err").read_text()
        assert_all_counted_once(training, epochs=2)
        widths = record.widths(training.sample_record)
    assert dict(widths)[60] == 1
    assert emulated(attempt, tmp_path, widths) == end["digest"]
