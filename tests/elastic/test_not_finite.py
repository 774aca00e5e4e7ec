"""Steps that are not finite: the job ends in an error that says where, or the step is left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from edt_contract.reports import ReportKind
from edt_runner.checkpoints import checkpoint
from support.training import Elastic

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]


def test_a_loss_that_is_not_finite_ends_the_job_and_the_state_before_it_is_kept(attempt: Attempt) -> None:
    """Two engines; one sample's inputs are infinite. The seed decides in which step it comes."""
    with attempt("wishes", "dense", "--with", "explode") as training:
        training.settle([1, 2])
        end = training.finish()
    assert end["kind"] == "script-error"
    said = re.search(
        r"step (\d+) \(epoch 1, after ([\d,]+) samples\): loss nan, gradient norm nan, learning rate 0.01",
        end["message"],
    )
    assert said is not None, end["message"]
    step = int(said[1])
    assert step > 1 and int(said[2]) == 16 * (step - 1)
    kept = checkpoint.newest(Path(training.spec.checkpoint_dir))
    assert kept is not None and kept.offset == step - 1
    errors = "".join(path.read_text() for path in training.log_dir.glob("*.err"))
    assert "kept as a checkpoint" in errors and "clip_grad_norm" in errors


def test_steps_that_are_not_finite_are_left_out_by_all_engines_alike(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    """One step of each epoch."""
    arguments = ("wishes", "dense", "--with", "explode,skip,schedule")
    with attempt(*arguments) as training:
        for engines in ([1], [1, 2, 3], [2, 3]):
            training.settle(engines)
        end = training.finish()
        assert not training.kinds(ReportKind.GUARANTEE_ENDED)
        printed = (training.log_dir / "training.log").read_text()
    assert end["kind"] == "finished", end
    assert "skipped_steps 2" in printed
    assert end["digest"] == undisturbed(*arguments)
