"""The function ``openedt.loader``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset

from edt_runner.callbacks import watching
from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch import schedules
from edt_runner.launch.user_loop import LoopOptions, UserLoop
from edt_runner.launch.user_loop_lines import StepCatcher
from edt_runner.training import TrainRequest
from fabric_model import arguments, loggers, pytorch, user_callbacks

_NAME = "openedt.loader()"


def loader(
    dataset: Any,
    model: nn.Module,
    optimizer: Any,
    *,
    epochs: int,
    batch_size: int,
    device_batch_size: int | None = None,
    shuffle: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int = 0,
    metrics: Sequence[str] = (),
    validation: Any = None,
    validation_step: Callable[..., Any] | None = None,
    validation_freq: int = 1,
    lr_scheduler: Any = None,
    lr_scheduler_interval: str = "epoch",
    lr_scheduler_metric: str = "val_loss",
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    loss_reduction: str = "sample",
    token_count: Callable[[Any], int] | None = None,
    on_nonfinite: str = "stop",
    early_stopping: int | Mapping[str, Any] | None = None,
    keep_best: tuple[str, str] | str | None = None,
    keep_last: int | None = None,
    checkpoint_freq: int = 1,
    user_callback: Any = None,
    seed: int | None = None,
    reduction: str = "exact",
    recovery_interval: float = 10.0,
    compare_interval: int | None = None,
    on_mismatch: str = "mark",
    require_exact: bool = False,
    driver_logger_callback: Any = None,
    worker_logger_callback: Any = None,
) -> UserLoop:
    """The batches of a whole training, for one loop over them, which any number of engines share.

        loader = openedt.loader(dataset, model, optimizer, epochs=3, batch_size=96, device_batch_size=32)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

    Each engine runs the loop's body for its own micro-batches of at most ``device_batch_size`` samples, on its own
    device. The update is that of the whole batch of ``batch_size`` samples: ``optimizer.step()`` takes the gradients,
    and when all micro-batches are there, all engines take the step. A clip, a ``GradScaler``, ``scheduler.step()`` and
    ``AveragedModel.update_parameters`` in the body act once for the whole batch, too. The page docs/own-script.md
    shows what else is recognised there, and what is refused with which line instead.

    The code after the loop runs once, with the trained weights. In a job it runs in the driver, where the body has not
    run, so a variable that the body sets does not exist there. In a process without a platform that sees one device,
    the body runs in this process, with the same bits.

    In the body, ``loader.epoch`` and ``loader.step`` are the place of the present update, ``loader.ends_epoch`` whether
    it is its epoch's last, ``loader.engines`` how many engines share it, and ``loader.leads`` whether this engine is
    the one that prints. ``loader.metrics`` has the values of the last epoch. ``loader.report(loss, name=value)`` gives
    metrics; the loss alone need not be reported, since ``backward()`` has told it.

    Args:
        dataset: a map-style data set, the same in every process.
        model: the model that the loop's body computes with; an engine moves it, and every batch, to its device.
        optimizer: a ``torch.optim.Optimizer`` over the model's parameters, or a list of several. The body calls
            ``step()`` of each at most once per batch, and of one at least. All take their step together, when the
            batch is complete.
        epochs: passes over the data set.
        batch_size: samples of one update, on any number of engines.
        device_batch_size: the most samples that a device computes at a time. An update has batch_size /
            device_batch_size micro-batches, and at most so many engines share it. With it, the bits are the same on
            any number of slots. None: as many micro-batches as the job may hold slots; one in a plain process.
        shuffle: use another order in each epoch; else the data set's own order.
        collate_fn: list of samples -> batch, of any nesting; None: samples are stacked.
        num_workers: loader processes of each engine; 0: the engine itself loads.
        metrics: names of the values that ``loader.report(loss, name=value)`` reports beside the loss.
        validation: a map-style data set that is validated with, at ends of epochs; None: there is no validation. The
            engines share it.
        validation_step: a function (model, batch) -> loss, or -> {"loss": …, metric: …}, for one micro-batch of
            ``validation``. It is called in evaluation mode and without gradients; the values are means over the
            micro-batch.
        validation_freq: epochs between two validations.
        lr_scheduler: a scheduler of ``torch.optim.lr_scheduler`` that was made with the optimizer, a function that
            makes one of it, or a list of these; the body then must not step it. None: a scheduler that the body steps
            moves once per update.
        lr_scheduler_interval: "epoch": it moves at each epoch's end, after the validation. "step": after each update.
        lr_scheduler_metric: the metric that a scheduler such as ``ReduceLROnPlateau`` gets at each epoch's end.
        clip_grad_norm: the most L2 norm of the whole batch's gradient over all parameters. None: no limit.
        clip_grad_value: the most absolute value of each number of that gradient. None: no limit.
        loss_reduction: what the loss of a micro-batch is: "sample": the mean over its samples; "token": the mean over
            its tokens; "sum": the sum over its samples. As in ``FabricModel``.
        token_count: a function batch -> number of tokens that the mean of a micro-batch's loss is over. None: the
            targets that are not -100.
        on_nonfinite: what happens if an update's loss or gradient is infinite or NaN: "stop", "skip" or "continue". An
            overflow under a ``GradScaler`` is none of these: the update is left out and the scale becomes smaller.
        early_stopping: end the training if a metric of the validations has not improved for a number of them: that
            number, or a dict of "patience", "metric" ("val_loss"), "mode" and "min_delta" (0).
        keep_best: (metric, "min" or "max"), or the metric's name: in a job, the model files of the best epoch are kept
            as ``model_best``.
        keep_last: in a job, keep only so many of the newest files of epochs; None: all.
        checkpoint_freq: in a job, epochs between two writings of model files; 0: only the final ones are written.
        user_callback: a ``openedt.Callback`` or a list of them, whose hooks run at ends of epochs in every engine.
        seed: seed of shuffling, augmentation and dropout; None: the job's seed, or EDT_SEED.
        reduction: "exact": the same bits on any number of engines; "fast": plain all-reduce.
        recovery_interval: in a job, seconds between two recovery checkpoints.
        compare_interval, on_mismatch, require_exact: how engines are compared, as in ``FabricModel.train``.
        driver_logger_callback, worker_logger_callback: in a job, loggers, as in ``FabricModel``.

    Returns:
        The loop, which can be iterated once.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes. While the
            loop runs: the body does something that several engines cannot do; the message has the line to write
            instead.
    """
    if not isinstance(model, nn.Module):
        raise arguments.usage("model", model, "a torch.nn.Module")
    _check_dataset("dataset", dataset)
    _check_validation(validation, validation_step)
    pytorch.check_parameters(model)
    optimizers = pytorch.optimizers_of(model, optimizer)
    arguments.check_count("epochs", epochs, least=1)
    arguments.check_count("batch_size", batch_size, least=1)
    arguments.check_count("num_workers", num_workers, least=0)
    arguments.check_count("checkpoint_freq", checkpoint_freq, least=0)
    arguments.check_count("validation_freq", validation_freq, least=1)
    for name, value, least in (("seed", seed, 0), ("keep_last", keep_last, 1)):
        if value is not None:
            arguments.check_count(name, value, least=least)
    if device_batch_size is not None:
        arguments.check_count("device_batch_size", device_batch_size, least=1)
    if collate_fn is not None:
        arguments.check_callable("collate_fn", collate_fn)
    arguments.check_seconds("recovery_interval", recovery_interval)
    arguments.comparing(compare_interval, on_mismatch, require_exact, reduction)
    if on_nonfinite not in ("stop", "skip", "continue"):
        raise arguments.usage("on_nonfinite", on_nonfinite, "'stop', 'skip' or 'continue'")
    if loss_reduction not in ("sample", "token", "sum"):
        raise arguments.usage("loss_reduction", loss_reduction, "'sample', 'token' or 'sum'")
    if token_count is not None and loss_reduction != "token":
        raise UsageError(f"token_count: got a value, takes None with loss_reduction={loss_reduction!r}")
    watched = watching.watchers(early_stopping, keep_best)
    if watched and validation is None:
        raise arguments.usage("validation", None, "a data set, with early_stopping or keep_best")
    schedulers = schedules.resolved(lr_scheduler, optimizers, lr_scheduler_interval)
    options = arguments.step_options(
        schedulers or None,
        lr_scheduler_interval,
        lr_scheduler_metric,
        clip_grad_norm=clip_grad_norm,
        clip_grad_value=clip_grad_value,
        precision="fp32",
        compile=False,
    )
    plateaus = any(isinstance(each, ReduceLROnPlateau) for each in schedulers)
    if plateaus and validation is None and lr_scheduler_metric.startswith("val_"):
        raise arguments.usage("validation", None, f"a data set, with a scheduler that needs {lr_scheduler_metric!r}")
    request = functools.partial(
        TrainRequest,
        worker_logger=loggers.chosen("worker_logger", None, "worker_logger_callback", worker_logger_callback),
        driver_logger=loggers.chosen("driver_logger", None, "driver_logger_callback", driver_logger_callback),
        collate=collate_fn,
        epochs=epochs,
        loader_processes=num_workers,
        checkpoint_freq=checkpoint_freq,
        seed=seed,
        exact=reduction == "exact",
        recovery_interval=float(recovery_interval),
        callbacks=user_callbacks.attached(user_callback, keras=False),
        compare_interval=compare_interval,
        on_mismatch=on_mismatch,
        require_exact=require_exact,
        shuffle=bool(shuffle),
        on_nonfinite=on_nonfinite,
        watched=watched,
        keep_last=keep_last,
    )
    loop = LoopOptions(
        name=_NAME,
        global_batch=batch_size,
        micro_batches=lambda slots: slots if device_batch_size is None else -(-batch_size // device_batch_size),
        metrics=_names(metrics),
        request=request,
        options=options,
        loss_reduction=loss_reduction,
        token_count=token_count,
        validation=validation,
        validation_step=validation_step,
        validation_freq=validation_freq,
    )
    return UserLoop(loop, dataset, model, [StepCatcher(each) for each in optimizers])


def _check_dataset(name: str, dataset: Any) -> None:
    """Check that a data set has an index and a length.

    Raises:
        UsageError: it has not, or is empty.
    """
    takes = "a map-style data set (with __getitem__ and __len__) that is not empty"
    if isinstance(dataset, DataLoader):
        raise arguments.usage(
            name, dataset, "the data set in it (loader.dataset); batch_size, shuffle and collate_fn are given here"
        )
    indexed = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if not indexed or not hasattr(dataset, "__len__") or not len(dataset):
        raise arguments.usage(name, dataset, takes)


def _check_validation(validation: Any, step: Any) -> None:
    if validation is None:
        if step is not None:
            raise UsageError("validation: got None with validation_step, takes a map-style data set")
        return
    _check_dataset("validation", validation)
    if step is None:
        raise UsageError(
            "validation_step: got None with validation, takes a function (model, batch) -> loss, or -> a dict of "
            "'loss' and metrics"
        )
    arguments.check_callable("validation_step", step)


def _names(metrics: Any) -> tuple[str, ...]:
    if isinstance(metrics, str) or not all(isinstance(name, str) and name != "loss" for name in metrics):
        raise arguments.usage("metrics", metrics, "a list of names, none of them 'loss'")
    return tuple(metrics)
