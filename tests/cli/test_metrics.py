"""How a terminal shows a job's metrics and speed: each metric under its own name."""

from __future__ import annotations

from typing import Any

import pytest

from edt_api.schemas.jobs import Job
from edt_api.schemas.step_times import StepTimes
from edt_cli import metrics

BARE: dict[str, Any] = {
    "id": "edt-1", "owner": "ana", "state": "RUNNING", "status": "running", "framework": "edtPyTorch",
    "app_name": "digits", "args": "", "num_worker": 1, "worker_device_num": 1, "max_workers": 1, "created_at": 1.0,
    "started_at": None, "finished_at": None, "stop_requested_at": None, "attempts": 1, "engines": None,
    "steps_total": None, "epochs": None, "slots": 1, "workers": 1, "progress": {}, "message": None, "digest": None,
    "exactness": {"verdict": "not-compared", "reason": "", "comparisons": 0, "compared_step": None},
    "checkpoint_step": None, "seed": 1, "threads": 1, "waiting": None, "work_dir": "",
}  # fmt: skip


def job(**values: Any) -> Job:
    return Job.model_validate(BARE | values)


VALIDATED = {"step": 40, "epoch": 2, "time": 1.0, "metrics": {"val_loss": 0.25, "val_accuracy": 0.98}}


def test_a_job_that_has_told_nothing_shows_nothing() -> None:
    shown = [metrics.main, metrics.training, metrics.validation, metrics.best, metrics.best_model, metrics.speed]
    assert {each(job()) for each in shown} == {""}


def test_metrics_of_training_and_validation_stand_under_their_own_names() -> None:
    training = job(progress={"loss": 0.31, "metrics": {"loss": 0.31, "perplexity": 12.3456}}, validation=VALIDATED)
    assert metrics.training(training) == "loss 0.31, perplexity 12.35"
    assert metrics.validation(training) == "val_loss 0.25, val_accuracy 0.98 (epoch 2)"
    assert metrics.training(job(progress={"loss": 0.5})) == "loss 0.5"


def test_a_value_that_is_not_a_number_is_said_to_be_none() -> None:
    assert metrics.training(job(progress={"loss": None, "metrics": {"loss": None}})) == "loss nan"
    assert metrics.main(job(main_metric={"name": "val_loss", "value": None})) == "val_loss nan"


def test_the_list_shows_the_metric_that_the_api_names() -> None:
    assert metrics.main(job(main_metric={"name": "val_accuracy", "value": 0.98123})) == "val_accuracy 0.9812"
    assert metrics.main(job(main_metric={"name": "val_multiclass_accuracy", "value": 0.5})) == "val_multiclass_… 0.5"


def test_the_best_values_have_their_epochs_and_the_model_that_is_kept_its_file() -> None:
    best = {"val_loss": {"value": 0.2, "epoch": 3, "step": 60}, "val_accuracy": {"value": 0.99, "epoch": 4, "step": 80}}
    kept = {"metric": "val_accuracy", "mode": "max", "value": 0.99, "epoch": 4, "step": 80, "file": "model_best"}
    trained = job(best=best, best_model=kept)
    assert metrics.best(trained) == "val_loss 0.2 (epoch 3), val_accuracy 0.99 (epoch 4)"
    assert metrics.best_model(trained) == "val_accuracy 0.99 (epoch 4), kept as model_best"


def test_of_many_metrics_the_first_are_shown() -> None:
    many = job(progress={"metrics": {f"m{number}": 1.0 for number in range(64)}})
    assert metrics.training(many).endswith("m7 1 and 56 more: -o json")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"progress": {"samples_per_second": 145.4}, "mean_samples_per_second": 9.5}, "145 samples/s, 9.5 in the mean"),
        ({"progress": {"samples_per_second": 1234.5}}, "1,234 samples/s"),
        ({"state": "FINISHED", "progress": {"samples_per_second": 12.0}}, "12 samples/s in the mean"),
        ({"state": "FINISHED", "mean_samples_per_second": 680.2}, "680 samples/s in the mean"),
    ],
)  # fmt: skip
def test_the_speed_of_a_job_that_is_over_is_its_mean(values: dict[str, Any], shown: str) -> None:
    assert metrics.speed(job(**values)) == shown


def test_efficiency_is_the_share_of_a_step_that_computes_and_says_how_long_a_step_takes() -> None:
    assert metrics.efficiency(StepTimes()) == ""
    shown = metrics.efficiency(StepTimes(steps=3, step_seconds=0.0692, efficiency=0.782))
    assert shown == "78 % of a step (69.2 ms) is forward and backward pass"
    assert "(1.5 s)" in metrics.efficiency(StepTimes(steps=3, step_seconds=1.5, efficiency=1.0))
