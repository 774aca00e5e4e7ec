"""train(lr_rule=…): what a rule remembers travels with the training, whoever computes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.schedule import Schedule
from support import crashes
from support.baselines import Baselines
from support.training import Elastic, script, with_pytorch_first

Attempt = Callable[..., Elastic]
CONV = ("conv", "--rule", "adascale")


@pytest.fixture
def digest(undisturbed: Callable[..., str]) -> str:
    return undisturbed(*CONV)


@with_pytorch_first
def test_what_the_rule_finds_is_in_progress_and_in_the_log(baselines: Baselines, framework: str) -> None:
    """Pages draw the first. E = 4 micro-batches of 4, in the last step of an epoch 13 samples; the learning rate was
    chosen for 16."""
    training = baselines.training(*CONV, framework=framework)
    metrics: dict[str, Any] = training.kinds(ReportKind.PROGRESS)[-1]["metrics"]
    names = ("batch", "learning_rate", "gradient_noise_scale", "gain", "scale_invariant_iterations")
    assert next(iter(metrics)) == "loss" and list(metrics)[-5:] == list(names)
    assert metrics["batch"] == 13.0
    assert 1.0 <= metrics["gain"] <= 13 / 4
    assert metrics["learning_rate"] == pytest.approx(1e-2 * 4 / 16 * metrics["gain"])
    assert 30.0 <= metrics["scale_invariant_iterations"] <= 30 * 4
    lines = (training.log_dir / "stdout").read_text().splitlines()
    steps = [line for line in lines if "] Train," in line]
    assert all("\tBatch: 16,\tLearning rate: 0.0" in line for line in (steps[0], steps[13], steps[15]))
    assert "\tBatch: 13," in steps[14] and "\tGain: " in steps[14]


@with_pytorch_first
def test_joins_leaves_and_a_kill_change_nothing(attempt: Attempt, digest: str) -> None:
    """1 → 3 → 2 (the first leaves) → 1 (the second is killed) → 2: the joining engines go on with the rule's memory."""
    with attempt(*CONV) as training:
        for engines in ([1], [1, 2, 3], [2, 3]):
            training.settle(engines)
        crashes.kill(training, [2], signal.SIGKILL)
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_GONE, allocation=2), sparing=True)
        training.settle([3, 4])
        end = training.finish()
        assert crashes.gone(training)[2] == "lost"
    assert end["digest"] == digest


def test_it_goes_on_from_a_checkpoint_of_the_same_rule_only(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    with attempt(*CONV) as training:
        training.settle([1, 2])
        training.hold([])
        training.gate.until(training.over, sparing=True)
    with attempt(*CONV, fence=2) as training:
        training.settle([4])
        assert training.finish()["digest"] == digest
    main = tmp_path / "main.py"
    main.write_text(script("conv").read_text().replace("lr_rule=options.rule", "lr_rule='linear'"))
    with attempt(main, *CONV[1:], fence=3) as training:
        training.settle([5])
        assert training.finish()["digest"] != digest
        log = (training.log_dir / "driver.err").read_text()
    assert "lr_rule was adascale(power=1.0, base='micro_batch') of 16, is linear() of 16" in log


def test_a_rule_that_the_optimizer_cannot_follow_ends_it_before_the_first_step(
    attempt: Attempt, tmp_path: Path
) -> None:
    main = tmp_path / "main.py"
    main.write_text(script("counting").read_text().replace("checkpoint_freq=0", "lr_rule='adam-sqrt'"))
    with attempt(main) as training:
        training.hold([1])
        end = training.finish()
        log = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error"
    assert "lr_rule: got 'adam-sqrt', which changes an optimizer's betas, with SGD, which has none" in log


def test_with_a_batch_that_follows_the_engines_the_same_history_has_the_same_bits(
    attempt: Attempt, tmp_path: Path
) -> None:
    """1 → 3 → 2 by a kill, and the same widths on one engine: gain, noise and tau of batches that change."""
    follows = (*CONV, "--scaling", "per_engine")
    with attempt(*follows, environ=crashes.crashing(tmp_path, "engine.before-reduce#2", armed=False)) as training:
        for engines in ([1], [1, 2, 3]):
            training.settle(engines)
        training.gate.until(lambda: 3 in dict(record.widths(training.sample_record)).values())
        crashes.arm(training)
        end = training.finish()
        assert crashes.crashed(training)
        widths = record.widths(training.sample_record)
        metrics = training.kinds(ReportKind.PROGRESS)[-1]["metrics"]
    assert {1, 2, 3} <= {width for _, width in widths}
    schedule = Schedule(237, 37, micro_batches=1, batch_size=4, epochs=2, follows_engines=True)
    positions = {schedule.at(position).training_steps_before: position for position in reversed(range(schedule.length))}
    file = tmp_path / "emulation.json"
    file.write_text(json.dumps({"widths": [[positions[step], width] for step, width in widths]}))
    with attempt(*follows, folder="emulated", environ={"EDT_EMULATE": str(file)}) as training:
        training.settle([1])
        assert training.finish()["digest"] == end["digest"]
        assert training.kinds(ReportKind.PROGRESS)[-1]["metrics"] == metrics
