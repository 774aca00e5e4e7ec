"""A wrong argument is named, with what it got and what it takes, before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from callbacks import LoggerCallback
from edt_runner.errors import UsageError
from fabric_model import FabricModel, arguments
from fabric_model.pytorch import named, top1_accuracy
from runai.ga.torch import optim

net = nn.Linear(3, 2)


def good(**changes: Any) -> dict[str, Any]:
    return {
        "model": net,
        "datasets_function": lambda: ([], []),
        "loss_function": nn.functional.cross_entropy,
        "optimizer": torch.optim.SGD(net.parameters(), 0.1),
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": 3}, ["model", "got 3", "torch.nn.Module"]),
        ({"datasets_function": [1]}, ["datasets_function", "list", "a function"]),
        ({"save_to_onnx": "model.onnx"}, ["save_to_onnx", "'model.onnx'", "True or False"]),
        ({"enable_onnx": 1}, ["enable_onnx", "got 1", "True or False"]),
        ({"loss_function": "mse"}, ["loss_function", "'mse'", "a function"]),
        ({"optimizer": torch.optim.SGD}, ["optimizer", "the class SGD", "instance"]),
        ({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), 1)}, ["optimizer", "2 parameters", "model's"]),
        ({"optimizer": torch.optim.LBFGS(net.parameters())}, ["optimizer", "LBFGS", "closure"]),
        ({"optimizer": optim.SGD(2, net.parameters(), lr=1)}, ["optimizer", "SGD", "does not accumulate"]),
        ({"model": nn.Linear(2, 1, dtype=torch.complex64)}, ["model", "weight is complex", "real"]),
        ({"metrics": "accuracy"}, ["metrics", "'accuracy'", "a list"]),
        ({"metrics": [3]}, ["metrics[0]", "got 3"]),
        ({"metrics": ["auc"]}, ["metrics[0]", "'auc'", "'accuracy'"]),
        ({"fn_step_train": "step"}, ["fn_step_train", "'step'", "a function"]),
        ({"fn_test": 1}, ["fn_test", "got 1", "a function"]),
        ({"fn_test": print, "metrics": ["accuracy"]}, ["metrics", "takes None with fn_test"]),
        ({"scaleup_function": 4}, ["scaleup_function", "got 4", "a function"]),
        ({"driver_logger_callback": object()}, ["driver_logger_callback", "LoggerCallback"]),
        ({"worker_logger_callback": LoggerCallback}, ["worker_logger_callback", "instance"]),
        ({"fn_batch_collate": 1}, ["fn_batch_collate", "a function"]),
        ({"keras_custom_objects": {}}, ["keras_custom_objects", "torch.nn.Module"]),
    ],
)
def test_the_constructor_names_what_is_wrong(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        FabricModel(**good(**changes))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ((0, 4), ["epoch_number", "got 0", "at least 1"]),
        ((1, "4"), ["batch_size", "'4'"]),
        ((1, 4, 0), ["engines_number", "at least 1"]),
        ((1, 4, 2, -1), ["num_dataloader_threads", "at least 0"]),
        ((1, 4, 2, 0, 1.5), ["validation_freq", "1.5"]),
        ((1, 4, 2, 0, 1, True), ["checkpoint_freq", "True"]),
        ((1, 4, None, 0, 1, 1, 10), ["effective_batch_size", "got 10", "multiple of batch_size 4", "8 and 12"]),
    ],
)
def test_train_names_what_is_wrong(call: tuple[Any, ...], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        FabricModel(**good()).train(*call)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"compare_interval": -1}, "compare_interval: got -1, takes None (each epoch's end), a whole number"),
        ({"compare_interval": True}, "compare_interval: got True"),
        (
            {"audit_interval": -1},
            "audit_interval: got -1, takes None (once a minute), a whole number of training steps",
        ),
        ({"audit_interval": 0.5}, "audit_interval: got 0.5"),
        ({"audit_interval": True}, "audit_interval: got True"),
        ({"on_mismatch": "ignore"}, "on_mismatch: got 'ignore', takes 'mark', 'stop' or 'restore'"),
        ({"require_exact": 1}, "require_exact: got 1, takes True or False"),
        ({"require_exact": True, "reduction": "fast"}, "require_exact: got True, takes False with reduction='fast'"),
    ],
)
def test_what_is_to_be_compared_and_required_is_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        FabricModel(**good()).train(1, 4, **given)
    assert words in str(caught.value)


def test_reduction_takes_two_words() -> None:
    with pytest.raises(UsageError, match="reduction: got 'quick', takes 'exact' or 'fast'"):
        FabricModel(**good()).train(1, 4, reduction="quick")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What train() hands on."""
    requests: list[Any] = []
    monkeypatch.setattr("fabric_model.model.train", requests.append)
    return requests


def test_wmlas_three_positional_arguments_and_older_keywords_are_taken(asked: list[Any]) -> None:
    FabricModel(
        net, good()["datasets_function"], nn.functional.cross_entropy, good()["optimizer"], driver_logger=Old()
    ).train(10, 64, 16, num_dataloader_threads=4, validation_freq=10, checkpoint_freq=0)
    [request] = asked
    assert (request.epochs, request.batch_size, request.micro_batches) == (10, 64, 16)
    assert (request.loader_processes, request.validation_freq, request.checkpoint_freq) == (4, 10, 0)
    assert not request.notes


@pytest.mark.parametrize(
    ("constructor", "call", "words"),
    [
        ({"scaleup_function": lambda epoch, most: most}, {}, "scaleup_function: never called"),
        ({}, {"worker_memory": "16G"}, "worker_memory: no effect"),
        ({}, {"driver_memory": "1G"}, "driver_memory: no effect"),
        ({}, {"hardware_spec": {"nodes": {"num_nodes": 2}}}, "hardware_spec: no effect"),
    ],
)
def test_what_is_taken_without_effect_is_said_in_one_line(
    constructor: dict[str, Any], call: dict[str, Any], words: str, asked: list[Any]
) -> None:
    FabricModel(**good(**constructor)).train(1, 4, 2, **call)
    [note] = asked[0].notes
    assert note.startswith(words) and "\n" not in note


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"worker_num": 2}, 2),
        ({"worker_num": 2, "worker_device_num": 4}, 8),
        ({"worker_num": 2, "engines_number": 3}, 3),
        ({"worker_device_num": 4}, None),
    ],
)
def test_workers_and_their_devices_stand_for_engines_number(
    given: dict[str, int], expected: int | None, asked: list[Any]
) -> None:
    FabricModel(**good()).train(1, 4, **given)
    assert asked[0].micro_batches == expected


def test_a_metric_may_be_named() -> None:
    assert named(["accuracy", top1_accuracy]) == {"accuracy": top1_accuracy, "top1_accuracy": top1_accuracy}


def test_a_model_that_was_not_trained_cannot_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="called before train"):
        FabricModel(**good()).download(tmp_path)


class Old:
    """A logger of WMLA 1.2.x that derives from nothing."""

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None: ...

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None: ...


@pytest.mark.parametrize("value", [0, -1.0, True, "10", None, float("nan"), float("inf")])
def test_the_recovery_interval_is_a_time(value: Any) -> None:
    with pytest.raises(UsageError, match=r"recovery_interval: got .*, takes a number of seconds above 0"):
        FabricModel(**good()).train(1, 4, recovery_interval=value)


@pytest.mark.parametrize(("changes", "seconds"), [({}, 10.0), ({"recovery_interval": 3}, 3.0)])
def test_the_recovery_interval_reaches_the_engines(changes: dict[str, Any], seconds: float, asked: list[Any]) -> None:
    FabricModel(**good()).train(1, 4, **changes)
    assert asked[0].recovery_interval == seconds


@pytest.mark.parametrize(
    ("engines", "effective", "batch", "expected"),
    [(4, None, 8, 4), (None, 64, 8, 8), (4, 64, 8, 8), (16, 64, 8, 16), (None, None, 8, None)],
)
def test_the_number_of_logical_workers_follows_wmlas_rule(
    engines: int | None, effective: int | None, batch: int, expected: int | None
) -> None:
    assert arguments.micro_batches(engines, effective, batch) == expected


def test_metrics_of_one_name_are_told_apart() -> None:
    assert list(named([top1_accuracy, top1_accuracy])) == ["top1_accuracy", "top1_accuracy_2"]


def test_there_is_no_accuracy_where_outputs_are_no_scores() -> None:
    assert top1_accuracy(torch.zeros(3), torch.zeros(3)) is None
    assert top1_accuracy(torch.eye(3), torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)


def test_pyedt_is_the_same_class() -> None:
    from pyedt.fabric_model import FabricModel as Other

    assert Other is FabricModel
