"""``runai.elastic.torch.loader``: a loop that goes on through resizes. Room: runners; torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from edt_runner.engine.shares import logical_map
from edt_runner.pytorch.own_loop import OwnLoop, Pedal, Wanted
from edt_runner.training import Logger
from runai import elastic
from runai._arguments import usage, whole
from runai.ga.torch.optim import Accumulating

_NAME = "runai.elastic.torch.loader()"


def loader(
    dataset: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs: int = 1,
    seed: int | None = None,
    shuffle: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    *,
    num_workers: int = 0,
    metrics: Sequence[str] = (),
    lr_scheduler: Any = None,
    lr_scheduler_interval: str = "epoch",
    reduction: str = "exact",
    checkpoint_freq: int = 0,
    recovery_interval: float = 10.0,
    compare_interval: int | None = None,
    on_mismatch: str = "mark",
    require_exact: bool = False,
    driver_logger_callback: Any = None,
    worker_logger_callback: Any = None,
) -> OwnLoop:
    """The micro-batches of a whole training, for one loop over them; see ``runai.elastic.torch``.

    Args:
        dataset: map-style, the same in every process.
        model: what the loop's body computes with; an engine moves it, and every batch, to its GPU.
        optimizer: one of ``runai.ga.torch.optim`` or of ``torch.optim``, over parameters of the model. The body calls
            ``step()`` once a batch; an update follows when the global batch is complete, whatever ``steps`` is.
        epochs: passes over the data set.
        seed: of shuffling, augmentation and dropout; None: the job's, or EDT_SEED.
        shuffle: another order each epoch; else the data set's own.
        collate_fn: list of samples -> batch; None: torch's default.
        num_workers: loader processes of each engine; 0: it loads by itself.
        metrics: names of what ``loader.report(loss, name=value)`` reports beside the loss.
        lr_scheduler: a torch scheduler of ``optimizer`` that needs no metric. The body must not step it.
        lr_scheduler_interval: "epoch" or "step": after which it moves.
        reduction: "exact": the same bits on any number of engines; "fast": plain all-reduce.
        checkpoint_freq: in a job, write model files every so many epochs; 0: only the final ones.
        recovery_interval: in a job, seconds between the engines' own checkpoints.
        compare_interval: in a job, updates from one comparison of what the engines hold to the next; None: the ends of
            epochs, as far as they cost less than 1 % of the time. Either way after each join and at the end. 0: never.
        on_mismatch: what then, where they differ: "mark" (all take the first engine's state and go on, the result is
            marked "not exact"), "stop" (an error), or "restore" (all go back to the newest checkpoint at which they
            were equal, once; the second time it is an error).
        require_exact: whatever ends the guarantee of an exact result is an error; engines that are unlike others do not
            join.
        driver_logger_callback, worker_logger_callback: loggers of WMLA 4.x, as ``FabricModel`` takes them; in a job.

    Raises UsageError, a ValueError, that names the argument, what it got and what it takes.
    """
    global_batch = int(elastic.global_batch_size)  # before init() an error that says so
    indexed = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if not indexed or not hasattr(dataset, "__len__") or not len(dataset):
        raise usage("dataset", dataset, "a map-style data set (with __getitem__ and __len__) that is not empty")
    if not isinstance(model, nn.Module):
        raise usage("model", model, "a torch.nn.Module")
    if lr_scheduler_interval not in ("epoch", "step"):
        raise usage("lr_scheduler_interval", lr_scheduler_interval, "'epoch' or 'step'")
    if reduction not in ("exact", "fast"):
        raise usage("reduction", reduction, "'exact' or 'fast'")
    wanted = Wanted(
        name=_NAME,
        global_batch=global_batch,
        most=elastic._max_gpu_batch_size,
        epochs=whole("epochs", epochs),
        seed=_count("seed", seed) if seed is not None else None,
        shuffle=bool(shuffle),
        collate=collate_fn,
        loader_processes=_count("num_workers", num_workers),
        metrics=tuple(metrics),
        lr_scheduler=_scheduler(lr_scheduler),
        per_step=lr_scheduler_interval == "step",
        exact=reduction == "exact",
        checkpoint_freq=_count("checkpoint_freq", checkpoint_freq),
        recovery_interval=_seconds("recovery_interval", recovery_interval),
        compare_interval=_count("compare_interval", compare_interval) if compare_interval is not None else None,
        on_mismatch=_one_of("on_mismatch", on_mismatch, ("mark", "stop", "restore")),
        require_exact=_exactness(require_exact, reduction),
        driver_logger=_logger("driver_logger_callback", driver_logger_callback),
        worker_logger=_logger("worker_logger_callback", worker_logger_callback),
    )
    return OwnLoop(wanted, dataset, model, _pedal(model, optimizer), _follow)


def _count(name: str, value: object) -> int:
    return 0 if value == 0 and value is not False else whole(name, value, "a whole number, at least 0")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise usage(name, value, f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}")
    return str(value)


def _exactness(required: object, reduction: str) -> bool:
    if not isinstance(required, bool):
        raise usage("require_exact", required, "True or False")
    if required and reduction != "exact":
        raise usage("require_exact", required, f"False with reduction={reduction!r}, whose result is not exact")
    return required


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise usage(name, value, "a number of seconds above 0")
    return float(value)


def _logger(name: str, logger: Any) -> Logger | None:
    methods = ("on_train_begin", "on_train_end", "log_train_metrics", "log_test_metrics")
    if logger is None:
        return None
    if isinstance(logger, type) or not all(callable(getattr(logger, method, None)) for method in methods):
        raise usage(name, logger, "a callbacks.LoggerCallback instance, of WMLA 4.x")
    found: Logger = logger
    return found


def _scheduler(scheduler: Any) -> Any:
    if scheduler is None:
        return None
    takes = "a torch.optim.lr_scheduler that needs no metric"
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise usage("lr_scheduler", scheduler, takes)
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        raise usage("lr_scheduler", scheduler, takes)
    return scheduler


def _follow(engines: int, own: int, sizes: Sequence[int], leads: bool) -> None:
    """The attributes of ``runai.elastic`` while ``engines`` share a step, ``own`` micro-batches of it in this one."""
    runs = logical_map(len(sizes), engines)
    rounds = [sum(sizes[run[place]] for run in runs if place < len(run)) for place in range(len(runs[0]))]
    elastic._set(gpus=engines, steps=own, batch_size=max(sizes), sizes=tuple(rounds), master=leads)


def _pedal(model: nn.Module, optimizer: Any) -> Pedal:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise usage("optimizer", optimizer, "an optimizer of runai.ga.torch.optim or of torch.optim")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise usage("optimizer", optimizer, "one whose update needs no closure")
    known = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"]):
        raise usage("optimizer", optimizer, "one over parameters of the model that the loader is given")
    return _AccumulatingPedal(optimizer) if isinstance(optimizer, Accumulating) else _PlainPedal(optimizer)


class _AccumulatingPedal:
    """One of ours, which has a place for whoever takes its steps."""

    def __init__(self, optimizer: Accumulating) -> None:
        self.optimizer = optimizer
        self.averages = optimizer._runai.reduction == "mean"
        self._loop: OwnLoop | None = None

    def catch(self, loop: OwnLoop) -> None:
        self._loop = loop
        self.optimizer.runai.driver = self

    def release(self) -> None:
        self.optimizer.runai.driver = None

    def step(self, optimizer: Accumulating, closure: Any, samples: int | None) -> Any:
        """See ``Driver``. The samples are known better here."""
        assert self._loop is not None
        if self._loop.in_body:
            return self._loop.take_step(closure)
        return optimizer.update()


class _PlainPedal:
    """One of torch's: its ``step`` is replaced for the time of the loop."""

    averages = True

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def catch(self, loop: OwnLoop) -> None:
        self._before = vars(self.optimizer).get("step")
        update = self.optimizer.step

        def step(closure: Any = None) -> Any:
            return loop.take_step(closure) if loop.in_body else update(closure)

        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # torch: no scheduler need patch it
        self.optimizer.step = step  # type: ignore[method-assign]

    def release(self) -> None:
        if self._before is None:
            del self.optimizer.step
        else:
            self.optimizer.step = self._before  # type: ignore[method-assign]
