"""Both families of WMLA's loggers, under either keyword, as the engine calls them."""

from __future__ import annotations

from typing import Any

import pytest

from callbacks import LoggerCallback
from edt_runner.errors import UsageError
from fabric_model import loggers

METRICS = {"loss": 0.5, "accuracy": 0.25}


class Calls:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []


class Old(Calls, LoggerCallback):
    """As in IBM's samples of 1.2.3 to 2.3.0; its base class is the one that 4.x's loggers have."""

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):  # type: ignore[no-untyped-def]
        self.calls.append(("train", loss, acc, completed_batch, worker))

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):  # type: ignore[no-untyped-def]
        self.calls.append(("test", loss, acc, completed_batch, worker))


class OnlyTrains(Calls, LoggerCallback):
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):  # type: ignore[no-untyped-def]
        self.calls.append(("train", loss, acc, completed_batch, worker))


class NewBySample(Calls, LoggerCallback):
    """As in IBM's samples of 4.0, which give it as ``driver_logger``."""

    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):  # type: ignore[no-untyped-def]
        self.calls.append(("train", metrics, completed_batch, epoch, worker))

    def log_test_metrics(self, metrics, completed_batch, epoch):  # type: ignore[no-untyped-def]
        self.calls.append(("test", metrics, completed_batch, epoch))


class Silent(Calls):
    """Its parameters say nothing; it has no base class and no hooks."""

    def log_train_metrics(self, *values: Any) -> None:
        self.calls.append(("train", *values))

    def log_test_metrics(self, *values: Any) -> None:
        self.calls.append(("test", *values))


def log_once(old: Any = None, new: Any = None) -> None:
    """A training step and a validation, as the driver tells them."""
    logger = loggers.chosen("driver_logger", old, "driver_logger_callback", new)
    assert logger is not None
    logger.on_train_begin()
    logger.log_train_metrics(METRICS, 8, 1, 2)
    logger.log_test_metrics(METRICS, 0, 1)
    logger.on_train_end()


AS_OLD = [("train", 0.5, 25.0, 8, 0), ("test", 0.5, 25.0, 8, 0)]
AS_NEW = [("train", METRICS, 8, 1, 2), ("test", METRICS, 0, 1)]


@pytest.mark.parametrize("keyword", ["old", "new"])
def test_a_logger_of_1_2_gets_loss_and_accuracy_in_percent_under_either_keyword(keyword: str) -> None:
    logger = Old()
    log_once(**{keyword: logger})
    assert logger.calls == AS_OLD


@pytest.mark.parametrize("keyword", ["old", "new"])
def test_a_logger_of_4_gets_the_dict_under_either_keyword(keyword: str) -> None:
    logger = NewBySample()
    log_once(**{keyword: logger})
    assert logger.calls == AS_NEW


def test_where_the_parameters_say_nothing_the_keyword_does() -> None:
    old, new = Silent(), Silent()
    log_once(old=old)
    log_once(new=new)
    assert (old.calls, new.calls) == (AS_OLD, AS_NEW)


def test_a_method_that_is_not_overridden_is_not_taken_for_one_of_the_other_family() -> None:
    logger = OnlyTrains()
    log_once(old=logger)
    assert logger.calls == AS_OLD[:1]


def test_a_4_x_logger_is_handed_on_as_it_is() -> None:
    logger = LoggerCallback()
    assert loggers.chosen("worker_logger", None, "worker_logger_callback", logger) is logger
    assert loggers.chosen("worker_logger", None, "worker_logger_callback", None) is None


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [({"loss": 1.0}, 0.0), ({"loss": 1.0, "mae": 0.5}, 50.0), ({"loss": 1.0, "mae": 0.5, "sparse_acc": 1.0}, 100.0)],
)
def test_the_accuracy_of_1_2_is_the_metric_called_so_else_the_first_one(
    metrics: dict[str, float], accuracy: float
) -> None:
    logger = Old()
    chosen = loggers.chosen("driver_logger", logger, "driver_logger_callback", None)
    assert chosen is not None
    chosen.log_train_metrics(metrics, 4, 1, 1)
    assert logger.calls == [("train", 1.0, accuracy, 4, 0)]


class TakesNothing(LoggerCallback):
    def log_train_metrics(self) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (Old(), NewBySample(), ["driver_logger and driver_logger_callback", "takes one"]),
        (Old, None, ["driver_logger", "the class Old", "instance"]),
        (object(), None, ["driver_logger", "it has no log_train_metrics, log_test_metrics"]),
        (None, TakesNothing(), ["driver_logger_callback", "log_train_metrics()", "loss, acc, completed_batch"]),
    ],
)
def test_what_is_no_logger_is_refused_by_the_keyword_it_was_given_under(old: Any, new: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        loggers.chosen("driver_logger", old, "driver_logger_callback", new)
    assert all(word in str(caught.value) for word in words), str(caught.value)
