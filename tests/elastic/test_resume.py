"""A training that stopped goes on from its checkpoint as if it had not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.checkpoints import checkpoint
from support.training import Both, Elastic, cases, on_both_frameworks, with_pytorch_first
from support.waiting import until

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]
SELDOM = ("--recovery", 600)
"""Checkpoints at the end of an epoch, and none because the machine is slow."""


def come_to_checkpoint(training: Elastic, epoch: int) -> None:
    """Of the end of ``epoch``, behind which the training stands until the disk has it."""
    training.gate.allow(15 * epoch + 1)
    training.gate.close()
    until(lambda: len(training.kinds(ReportKind.CHECKPOINTED)) == epoch, 60, "the epoch's checkpoint is on disk")


@on_both_frameworks
def test_the_last_engine_leaves_a_checkpoint_in_mid_epoch_and_the_next_attempt_goes_on(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    """2 engines, both leave in the first epoch; 3 engines go on."""
    expected = undisturbed("conv")
    with attempt("conv") as training:
        training.settle([1, 2])
        training.hold([])
        training.gate.until(training.over, sparing=True)
        end = training.kinds(ReportKind.ATTEMPT_ENDED)[-1]
        left_at = training.kinds(ReportKind.CHECKPOINTED)[-1]
    assert end["kind"] == "left"
    assert 0 < left_at["step"] < 15  # an epoch has 15 steps
    with attempt("conv", fence=2) as training:
        training.settle([4, 5, 6])
        end = training.finish()
    assert end["digest"] == expected
    audits = record.audit(record.read(training.sample_record), samples=237, epochs=2)
    assert [(audit.lost, audit.repeated) for audit in audits] == [((), ()), ((), ())]


def test_when_all_engines_die_at_once_the_next_attempt_goes_on_from_the_checkpoint(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("conv")
    with attempt("conv", *SELDOM) as training:
        training.settle([1, 2])
        come_to_checkpoint(training, 1)
        for started in training.kinds(ReportKind.ENGINE_STARTED):
            os.kill(started["pid"], signal.SIGKILL)
        end = training.finish()
        gone = {body["allocation"]: body for body in training.kinds(ReportKind.ENGINE_GONE)}
    assert (end["kind"], end["whole"]) == ("lost", True)
    assert gone[2]["signal"] == signal.SIGKILL and gone[2]["kind"] == "lost"
    with attempt("conv", *SELDOM, fence=2) as training:
        training.settle([3])
        assert training.finish()["digest"] == expected
        assert "Resuming from step 15 of 30" in (training.log_dir / "driver.err").read_text()


@with_pytorch_first
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(attempt: Attempt, undisturbed: Undisturbed) -> None:
    expected = undisturbed("conv", "--epochs", 3)
    with attempt("conv", "--epochs", 3, *SELDOM) as training:
        training.settle([1])
        for epoch in (1, 2):
            come_to_checkpoint(training, epoch)
    newest = sorted(Path(training.spec.checkpoint_dir).glob("at-*"))[-1]
    state = newest / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    with attempt("conv", "--epochs", 3, *SELDOM, fence=2) as training:
        training.settle([2])
        assert training.finish()["digest"] == expected
        log = (training.log_dir / "driver.err").read_text()
    assert "is passed over" in log and "Resuming from step 15 of 45" in log


def left_in_mid_epoch(training: Elastic) -> dict[str, Any]:
    """Let one engine train a part of the first epoch and leave. Returns how a job begins from its checkpoint."""
    training.settle([1])
    training.hold([])
    training.gate.until(training.over, sparing=True)
    return {"folder": "another", "begin_from": "edt-1", "begin_dir": training.spec.checkpoint_dir}


def parameters(folder: str) -> dict[str, Any]:
    """Of the newest checkpoint in ``folder``."""
    found = checkpoint.newest(Path(folder))
    assert found is not None
    tensors = load_file(found.state_file)
    return {name: t for name, t in tensors.items() if name.startswith("model.") and "moving" not in name}


@with_pytorch_first
def test_another_job_goes_on_from_a_checkpoint_and_ends_with_the_bits_of_one_undisturbed_run(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    """The first has two epochs and leaves in the first of them; the other has three."""
    with attempt("conv") as first:
        begin = left_in_mid_epoch(first)
    with attempt("conv", "--epochs", 3, **begin) as training:
        training.settle([1, 2])
        assert training.finish()["digest"] == undisturbed("conv", "--epochs", 3)
        log = (training.log_dir / "driver.err").read_text()
    assert re.search(r"Resuming from step \d+ of 45, with the state of edt-1\.", log)
    assert len(list(Path(training.spec.checkpoint_dir).glob("at-*"))) == 1  # what is over keeps the newest


@cases(
    "others, begins",
    [
        Both((), "Resuming from step"),
        (("--samples", 56), "Beginning at step 0 with the weights and the optimizer of edt-1"),
    ],
)
def test_the_learning_rate_of_the_script_wins_over_that_of_the_checkpoint(
    attempt: Attempt, framework: str, others: tuple[object, ...], begins: str
) -> None:
    """It is 0, so that the other job ends with the parameters with which the first has left."""
    with attempt("conv") as first:
        begin = left_in_mid_epoch(first)
    with attempt("conv", "--lr", 0, *others, **begin) as training:
        training.settle([1])
        assert training.finish()["kind"] == "finished"
        log = (training.log_dir / "driver.err").read_text()
    assert begins in log
    before, after = parameters(begin["begin_dir"]), parameters(training.spec.checkpoint_dir)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_script_that_does_not_fit_the_checkpoint_of_another_job_ends_with_both_sides_named(attempt: Attempt) -> None:
    with attempt("conv") as first:
        begin = left_in_mid_epoch(first)
    with attempt("conv", "--classes", 7, **begin) as training:
        training.hold([1])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "--resume-from edt-1" in end["message"]
    assert "float32 [5, 96] in the training, float32 [7, 96] in this process" in end["message"]


def test_a_training_goes_on_with_the_epochs_that_its_job_was_given(attempt: Attempt, undisturbed: Undisturbed) -> None:
    """Three instead of two from its second attempt on, and two instead of three again in a third."""
    with attempt("conv", *SELDOM) as training:
        training.settle([1])
        come_to_checkpoint(training, 1)
        training.hold([])
        training.gate.until(training.over, sparing=True)
    with attempt("conv", *SELDOM, fence=2, epochs=3) as training:
        training.settle([2])
        training.gate.allow(31)
        until(lambda: training.happened(ReportKind.CHECKPOINTED, step=30), 60, "two epochs are on disk")
        training.hold([])
        training.gate.until(training.over, sparing=True)
        log = (training.log_dir / "driver.err").read_text()
    assert "The training has 3 epochs in all, as edt extend asked for; the script says 2." in log
    assert "Resuming from step" in log
    with attempt("conv", *SELDOM, fence=3, epochs=2) as training:
        training.settle([3])
        assert training.finish()["digest"] == undisturbed("conv")
    begin = {"folder": "another", "begin_from": "edt-1", "begin_dir": training.spec.checkpoint_dir}
    with attempt("conv", *SELDOM, epochs=3, **begin) as training:
        training.settle([1])
        assert training.finish()["digest"] == undisturbed("conv", "--epochs", 3)


def test_hooks_of_a_training_that_is_gone_on_from_run_as_if_it_had_not_ended(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    """The third epoch begins with half the rate, by a hook that its first training had no epoch for."""
    with attempt("hooked", "--epochs", 2) as first:
        first.settle([1])
        first.finish()
    begin = {"folder": "another", "begin_from": "edt-1", "begin_dir": first.spec.checkpoint_dir}
    with attempt("hooked", "--epochs", 4, **begin) as training:
        training.settle([1, 2])
        assert training.finish()["digest"] == undisturbed("hooked", "--epochs", 4)
        assert "hook begin 2" in "".join(path.read_text() for path in training.log_dir.glob("engine-*.out"))


@pytest.mark.extended  # its parts: the first of these, and test_wishes
def test_a_schedule_an_average_a_scaler_and_two_optimizers_go_on_with_another_job(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    wishes = ("wishes", "dense", "--with", "schedule,ema,clip,fp16,two")
    with attempt(*wishes) as first:
        begin = left_in_mid_epoch(first)
    with attempt(*wishes, "--epochs", 3, **begin) as training:
        training.settle([1, 2])
        assert training.finish()["digest"] == undisturbed(*wishes, "--epochs", 3)
    begin = {**begin, "folder": "third", "begin_dir": training.spec.checkpoint_dir}
    with attempt(*wishes, "--epochs", 4, "--lr", 5e-3, **begin) as training:
        training.settle([1])
        assert training.finish()["kind"] == "finished"
        assert "max_lr of group 0 0.05 → 0.025" in (training.log_dir / "driver.err").read_text()


def test_checkpoints_of_another_training_are_set_aside(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1])
        training.finish()
    with attempt("conv", "--samples", 56, fence=2) as training:
        training.settle([1])
        assert training.finish()["kind"] == "finished"
        log = (training.log_dir / "driver.err").read_text()
    assert "train_samples was 40, is 56" in log
    assert Path(training.spec.checkpoint_dir + ".1").is_dir()


def test_a_checkpoint_names_what_it_is_and_holds_no_pickle(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1])
        training.finish()
    newest = sorted(Path(training.spec.checkpoint_dir).glob("at-*"))[-1]
    manifest = json.loads((newest / "manifest.json").read_text())
    assert manifest["identity"]["micro_batches"] == 4
    assert set(manifest["files"]) == {"state.safetensors"}
    assert {path.name for path in newest.iterdir()} == {"state.safetensors", "manifest.json"}
    assert (newest.parent / "latest").read_text().strip() == newest.name


def test_a_checkpoint_of_a_release_without_callbacks_and_rules_is_gone_on_from(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1])
        training.hold([])
        training.gate.until(training.over, sparing=True)
    for path in Path(training.spec.checkpoint_dir).glob("at-*/manifest.json"):
        manifest = json.loads(path.read_text())
        del manifest["sha256"]
        for later in ("user_callback", "batch_scaling", "emulated widths", "step_samples", "shuffled", "lr_rule"):
            del manifest["identity"][later]
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({**manifest, "sha256": digest}))
    with attempt("conv", "--samples", 40, fence=2) as training:
        training.settle([2])
        assert training.finish()["kind"] == "finished"
        assert "Resuming from step" in (training.log_dir / "driver.err").read_text()


def test_a_checkpoint_of_other_arguments_is_not_taken(attempt: Attempt) -> None:
    """The learning rate lies in the optimizer's state: going on from it would ignore the new one silently."""
    with attempt("conv") as training:
        training.settle([1])
        training.hold([])
        training.gate.until(training.over, sparing=True)
    with attempt("conv", "--reduction", "exact", fence=2) as training:
        training.settle([2])
        assert training.finish()["kind"] == "finished"
        assert "arguments was [], is ['--reduction', 'exact']" in (training.log_dir / "driver.err").read_text()
