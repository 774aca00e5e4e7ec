"""Elastic batches for PyTorch.

    runai.elastic.torch.init(256, 64)
    optimizer = runai.ga.torch.optim.SGD(runai.elastic.steps, model.parameters(), lr=0.1)
    model = nn.DataParallel(model)
    loader = DataLoader(dataset, batch_sampler=runai.elastic.torch.batches(dataset, shuffle=True))
    for inputs, targets in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step(samples=len(inputs))

``runai.elastic.batch_size`` is what ONE GPU computes at a time. ``nn.DataParallel`` divides its input among all GPUs,
so its loader must give ``batch_size * gpus`` samples. With ``batch_size=batch_size``, as in the original's examples, a
training on four GPUs would have a quarter of the global batch. ``data_parallel_batch()`` returns the right number.
``batches()`` also works if the global batch does not divide evenly.

A loop that continues through resizes, with one engine per GPU:

    runai.elastic.torch.init(256, 64)
    optimizer = runai.ga.torch.optim.SGD(runai.elastic.steps, model.parameters(), lr=0.1)
    loader = runai.elastic.torch.loader(dataset, model, optimizer, epochs=3)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loader.report(loss)                 # optional: shows the loss in logs and on pages

Engines share every update in a job of OpenEDT, and also in a plain process that sees several GPUs or has EDT_CPU_SLOTS
set. Each engine runs the loop's body for its own micro-batches. The gradients are summed in one order, whatever the
number of engines is, so joins, leaves and crashes change no weight. ``gpus`` and ``steps`` then describe the present
batch, and ``loader.epoch`` and ``loader.step`` are its place. In any other case the body runs in this process, with the
same arithmetic.

Code after the loop runs once, with the trained weights. In a job this happens in the driver, where the body has not
run. So the body should only compute gradients: a variable that it sets does not exist after the loop. A clip, a
GradScaler or ``scheduler.step()`` in it acts once for the whole batch, as in ``openedt.loader``, which is the same loop
with more arguments (docs/own-script.md). In a job, ``break`` is an error, and so is a second loop in the same script.
After a crash a micro-batch may be computed twice, but it counts once. For a loss that is a sum over the samples, give
the optimizer ``reduction="sum"``. Outside of a job, ``break`` ends the training after its last whole update, and no
checkpoints are written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.utils.data import IterableDataset, RandomSampler, Sampler, SequentialSampler

from edt_runner.errors import usage, whole
from edt_runner.frameworks.options import StepOptions
from edt_runner.launch.user_loop import LoopOptimizer, LoopOptions, UserLoop, seed_for_local_engines
from edt_runner.launch.user_loop_lines import Loop, StepCatcher
from edt_runner.loggers import Logger
from edt_runner.splits import even_split
from edt_runner.training import TrainRequest
from fabric_model.arguments import check_seconds, comparing
from runai import elastic
from runai.elastic import shares
from runai.ga.torch.optim import Accumulating

__all__ = ["batches", "data_parallel_batch", "init", "loader"]

_NAME = "runai.elastic.torch.loader()"


def init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Set the attributes of ``runai.elastic``, which that package describes.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one GPU can hold at a time.
        gpus: number of devices; None: those that torch sees, which respects CUDA_VISIBLE_DEVICES, or this CPU as one.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the attributes then stay as they were.
    """
    if gpus is None:
        gpus = torch.cuda.device_count() or 1
    elastic._init(global_batch_size, max_gpu_batch_size, gpus)
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    elastic._set(master=not several or torch.distributed.get_rank() == 0)
    seed_for_local_engines()


def data_parallel_batch() -> int:
    """Samples, over all GPUs, that a loader for ``nn.DataParallel`` gives at a time; the most if steps are uneven.

    If the global batch divides evenly, ``DataLoader(dataset, batch_size=runai.elastic.torch.data_parallel_batch())``
    gives exactly the global batch in ``runai.elastic.steps`` steps. Otherwise use ``batches()``.
    """
    return int(max(elastic.sizes))


class Batches(Sampler[list[int]]):
    """A batch sampler that follows ``runai.elastic.sizes``: ``DataLoader(dataset, batch_sampler=Batches(dataset))``.

    Each ``runai.elastic.steps`` consecutive batches are one global batch. Samples that are left over at an epoch's end
    make a last, smaller global batch. It also has ``steps`` batches if there are enough samples. These batches are
    weighted correctly if the optimizer knows their size: ``optimizer.step(samples=len(inputs))``.

    Args:
        dataset: an object with a length.
        shuffle: use another order in each epoch.
        sampler: yields the order, in place of ``shuffle``.
        generator: random generator for shuffling; None: torch's global one.
        drop_last: leave out the samples that make no whole global batch.

    Raises:
        UsageError: both ``shuffle`` and ``sampler`` are given.
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        shuffle: bool = False,
        sampler: Sampler[int] | None = None,
        generator: torch.Generator | None = None,
        drop_last: bool = False,
    ) -> None:
        if sampler is not None and shuffle:
            raise usage("shuffle", shuffle, "False beside a sampler, which has an order of its own")
        if sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self._sampler: Any = sampler  # torch types no length of samplers
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self._sampler)
        while cycle := list(islice(order, elastic.global_batch_size)):
            whole = len(cycle) == elastic.global_batch_size
            if self._drop_last and not whole:
                return
            samples = iter(cycle)
            for size in elastic.sizes if whole else shares(len(cycle), elastic.steps):
                if size:
                    yield list(islice(samples, size))

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        cycles, rest = divmod(len(self._sampler), elastic.global_batch_size)
        return int(cycles * elastic.steps + (0 if self._drop_last else min(rest, elastic.steps)))


batches = Batches


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
) -> UserLoop:
    """The micro-batches of a whole training, for one loop over them; ``runai.elastic.torch`` describes the loop.

    Args:
        dataset: a map-style data set, the same in every process.
        model: the model that the loop's body computes with; an engine moves it, and every batch, to its GPU.
        optimizer: an optimizer of ``runai.ga.torch.optim`` or ``torch.optim``, over parameters of the model. The body
            calls ``step()`` once per batch. The update follows when the global batch is complete, whatever ``steps``
            is.
        epochs: passes over the data set.
        seed: seed of shuffling, augmentation and dropout; None: the job's seed, or EDT_SEED.
        shuffle: use another order in each epoch; else the data set's own order.
        collate_fn: list of samples -> batch; None: torch's default.
        num_workers: loader processes of each engine; 0: the engine itself loads.
        metrics: names of the values that ``loader.report(loss, name=value)`` reports beside the loss.
        lr_scheduler: a torch scheduler of ``optimizer`` that needs no metric. The body must then not step it.
        lr_scheduler_interval: "epoch" or "step", after which the scheduler moves.
        reduction: "exact": the same bits on any number of engines; "fast": plain all-reduce.
        checkpoint_freq: in a job, epochs between two writings of model files; 0: only the final ones are written.
        recovery_interval: in a job, seconds between two recovery checkpoints.
        compare_interval: in a job, updates between two comparisons of what the engines hold; None: ends of epochs, as
            many as cost less than 1 % of the time. In both cases engines also compare after each join and at the end.
            0: never.
        on_mismatch: what happens if engines differ: "mark" (all engines take the first engine's state, the training
            continues, and the result is marked "not exact"), "stop" (an error), or "restore" (all engines go back to
            the newest checkpoint at which they were equal; the second time it is an error).
        require_exact: whatever ends the guarantee of an exact result is an error; engines that are unlike the others
            do not join.
        driver_logger_callback, worker_logger_callback: in a job, loggers of WMLA 4.x, as in ``FabricModel``.

    Raises:
        AttributeError: ``init`` was not called.
        UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes.
    """
    global_batch = int(elastic.global_batch_size)  # before init(), this raises an error that explains it
    indexed = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if not indexed or not hasattr(dataset, "__len__") or not len(dataset):
        raise usage("dataset", dataset, "a map-style data set (with __getitem__ and __len__) that is not empty")
    if not isinstance(model, nn.Module):
        raise usage("model", model, "a torch.nn.Module")
    if lr_scheduler_interval not in ("epoch", "step"):
        raise usage("lr_scheduler_interval", lr_scheduler_interval, "'epoch' or 'step'")
    check_seconds("recovery_interval", recovery_interval)
    comparing(compare_interval, on_mismatch, require_exact, reduction)
    request = functools.partial(
        TrainRequest,
        worker_logger=_logger("worker_logger_callback", worker_logger_callback),
        driver_logger=_logger("driver_logger_callback", driver_logger_callback),
        collate=collate_fn,
        epochs=whole("epochs", epochs),
        loader_processes=_count("num_workers", num_workers),
        checkpoint_freq=_count("checkpoint_freq", checkpoint_freq),
        seed=_count("seed", seed) if seed is not None else None,
        exact=reduction == "exact",
        recovery_interval=float(recovery_interval),
        compare_interval=compare_interval,
        on_mismatch=on_mismatch,
        require_exact=require_exact,
        shuffle=bool(shuffle),
    )
    most = elastic._max_gpu_batch_size
    found = _loop_optimizer(model, optimizer)
    options = LoopOptions(
        name=_NAME,
        global_batch=global_batch,
        micro_batches=lambda slots: max(-(-global_batch // most), slots),
        metrics=tuple(metrics),
        request=request,
        options=StepOptions(lr_scheduler=_scheduler(lr_scheduler), lr_scheduler_interval=lr_scheduler_interval),
        loss_reduction="sum" if isinstance(found, _AccumulatingOptimizer) and found.adds_up else "sample",
        reports_means=True,
    )
    return UserLoop(options, dataset, model, (found,), _follow)


def _count(name: str, value: object) -> int:
    return 0 if value == 0 and value is not False else whole(name, value, "a whole number, at least 0")


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
    kinds = torch.optim.lr_scheduler
    if isinstance(scheduler, kinds.ReduceLROnPlateau) or not isinstance(scheduler, kinds.LRScheduler):
        raise usage("lr_scheduler", scheduler, "a torch.optim.lr_scheduler that needs no metric")
    return scheduler


def _follow(engines: int, own: int, sizes: Sequence[int], leads: bool) -> None:
    """Set the attributes of ``runai.elastic`` for a step.

    Args:
        engines: the number of engines that share the step.
        own: micro-batches of the step in this engine.
        sizes: samples of all micro-batches of a full step.
        leads: whether this engine is the first.
    """
    runs = even_split(len(sizes), engines)
    rounds = [sum(sizes[run[place]] for run in runs if place < len(run)) for place in range(len(runs[0]))]
    elastic._set(gpus=engines, steps=own, batch_size=max(sizes), sizes=tuple(rounds), master=leads)


def _loop_optimizer(model: nn.Module, optimizer: Any) -> LoopOptimizer:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise usage("optimizer", optimizer, "an optimizer of runai.ga.torch.optim or of torch.optim")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise usage("optimizer", optimizer, "one whose update needs no closure")
    known = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"]):
        raise usage("optimizer", optimizer, "one over parameters of the model that the loader is given")
    return _AccumulatingOptimizer(optimizer) if isinstance(optimizer, Accumulating) else StepCatcher(optimizer)


class _AccumulatingOptimizer:
    """An optimizer of ``runai.ga.torch``, which lets a driver take its steps."""

    def __init__(self, optimizer: Accumulating) -> None:
        self.optimizer = optimizer
        self.adds_up = optimizer._runai.reduction == "sum"
        """Whether the micro-batches' gradients are added up; else they are averaged, as for a mean loss."""
        self._loop: Loop | None = None

    def catch(self, loop: Loop) -> None:
        self._loop = loop
        self.optimizer.runai.driver = self

    def release(self) -> None:
        self.optimizer.runai.driver = None

    def step(self, optimizer: Accumulating, closure: Any, samples: int | None) -> Any:
        """``Driver.step``. The loop knows how many samples the micro-batch has, so ``samples`` is ignored."""
        assert self._loop is not None
        body = self._loop.body
        return optimizer.update() if body is None else body.step(optimizer, closure)
