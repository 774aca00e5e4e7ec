"""The FabricModel class: WMLA's constructor and train(), checked here and played by ``edt_runner.training``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from edt_runner.play import train
from edt_runner.training import TrainRequest
from fabric_model import arguments
from fabric_model.metrics import named, top1_accuracy


class FabricModel:
    """A PyTorch model with its data, loss and optimizer.

    Args:
        model: an ``nn.Module``.
        datasets_function: no arguments; returns (train, test), map-style data sets of (inputs, targets); test may
            be None. Called in every process of a job, so it must give each the same data.
        loss_function: (outputs, targets) -> mean loss, a scalar tensor, such as ``F.cross_entropy``.
        optimizer: a ``torch.optim.Optimizer`` over the model's parameters.
        metrics: functions (outputs, targets) -> mean over the batch; they appear under their ``__name__``.
            None: accuracy, where the outputs are class scores.
        worker_logger_callback: a ``callbacks.LoggerCallback``, called in each engine with its own values.
        driver_logger_callback: called in the driver with means over all engines; None: WMLA's log lines.
        save_to_onnx: comes with a later release.
        keras_custom_objects: comes with edtTensorflow.
        fn_batch_collate: list of samples -> batch; None: torch's default.

    Raises:
        UsageError: (a ValueError) naming the argument, what it got and what it takes.
    """

    def __init__(
        self,
        model: nn.Module,
        datasets_function: Callable[[], tuple[Any, Any]],
        loss_function: Callable[[Any, Any], Any],
        optimizer: torch.optim.Optimizer,
        metrics: Sequence[Callable[[Any, Any], Any]] | None = None,
        worker_logger_callback: Any = None,
        driver_logger_callback: Any = None,
        save_to_onnx: bool = False,
        keras_custom_objects: Any = None,
        fn_batch_collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        arguments.check_instance("model", model, nn.Module, "a torch.nn.Module")
        arguments.check_parameters(model)
        arguments.check_callable("datasets_function", datasets_function)
        arguments.check_callable("loss_function", loss_function)
        arguments.check_instance("optimizer", optimizer, torch.optim.Optimizer, "a torch.optim.Optimizer instance")
        arguments.check_optimizer_covers(model, optimizer)
        arguments.check_metrics(metrics)
        arguments.check_logger("worker_logger_callback", worker_logger_callback)
        arguments.check_logger("driver_logger_callback", driver_logger_callback)
        arguments.refuse_later(save_to_onnx, keras_custom_objects)
        if fn_batch_collate is not None:
            arguments.check_callable("fn_batch_collate", fn_batch_collate)
        self.model = model
        self._datasets_function = datasets_function
        self._loss_function = loss_function
        self._optimizer = optimizer
        self._metrics = {"accuracy": top1_accuracy} if metrics is None else named(metrics)
        self._worker_logger, self._driver_logger = worker_logger_callback, driver_logger_callback
        self._collate = fn_batch_collate

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        num_dataloader_threads: int = 0,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        *,
        seed: int | None = None,
        reduction: str = "exact",
    ) -> None:
        """Train; afterwards ``self.model`` holds the trained weights. In an engine it does not return.

        Args:
            epoch_number: passes over the training set.
            batch_size: samples of one micro-batch, the most that a GPU holds at a time.
            engines_number: E, micro-batches of one step, and the most engines that can share them. The global
                batch is E x batch_size whatever the number of engines is.
            num_dataloader_threads: loader processes an engine; 0: the engine loads by itself.
            validation_freq: validate after every so many epochs; 0: never.
            checkpoint_freq: write the user's model files after every so many epochs; 0: only the final ones.
            effective_batch_size: the global batch. Alone it sets E = effective_batch_size / batch_size; beside
                engines_number the larger E counts; with neither, E is the number of slots offered.
            seed: of shuffling, augmentation and dropout; None: the job's.
            reduction: "exact": the result does not depend on the number of engines, bit for bit; "fast": plain
                all-reduce.
        """
        arguments.check_count("epoch_number", epoch_number, least=1)
        arguments.check_count("batch_size", batch_size, least=1)
        arguments.check_count("num_dataloader_threads", num_dataloader_threads, least=0)
        arguments.check_count("validation_freq", validation_freq, least=0)
        arguments.check_count("checkpoint_freq", checkpoint_freq, least=0)
        if seed is not None:
            arguments.check_count("seed", seed, least=0)
        if reduction not in ("exact", "fast"):
            raise arguments.usage("reduction", reduction, "'exact' or 'fast'")
        train(
            TrainRequest(
                model=self.model,
                datasets_function=self._datasets_function,
                loss_function=self._loss_function,
                optimizer=self._optimizer,
                metrics=self._metrics,
                worker_logger=self._worker_logger,
                driver_logger=self._driver_logger,
                collate=self._collate,
                epochs=epoch_number,
                batch_size=batch_size,
                logical_workers=arguments.logical_workers(engines_number, effective_batch_size, batch_size),
                loader_processes=num_dataloader_threads,
                validation_freq=validation_freq,
                checkpoint_freq=checkpoint_freq,
                seed=seed,
                exact=reduction == "exact",
            )
        )
