"""What a global batch means on this many GPUs.

``runai.elastic.torch.init`` or ``runai.elastic.keras.init`` sets these attributes of this module; before, reading one
is an AttributeError that says so:

    global_batch_size   samples of one update, as asked for
    gpus                devices it is spread over; a machine without GPUs counts as one device
    steps               micro-batches that each device computes for one update
    batch_size          samples of one micro-batch on one device, at most the stated maximum. If the global batch does
                        not divide evenly it is the largest of them
    sizes               samples of each step, over all devices: ``steps`` numbers whose sum is global_batch_size
    master              whether this process is the one that logs and saves
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from edt_runner.errors import usage, whole
from runai.utils.gpus import count as gpu_count

ATTRIBUTES = ("steps", "batch_size", "sizes", "global_batch_size", "gpus", "master")

_max_gpu_batch_size: int
"""Samples that one device can hold at a time, as asked for."""
_log = logging.getLogger("runai")


@dataclass(frozen=True)
class Split:
    """Who computes how much of one update: a global batch in micro-batches, none above what a GPU holds and no sample
    lost."""

    steps: int
    """Micro-batches of each GPU."""
    batch_size: int
    """Samples of the largest micro-batch."""
    sizes: tuple[int, ...]
    """Samples of every micro-batch, step by step and in a step GPU by GPU: steps x gpus numbers that differ by at most
    one. A zero is possible in the last places, where there are fewer samples than micro-batches."""

    @property
    def gpus(self) -> int:
        return len(self.sizes) // self.steps

    @property
    def global_batch_size(self) -> int:
        return sum(self.sizes)

    @property
    def steps_samples(self) -> tuple[int, ...]:
        """Samples of each step over all GPUs: what a loader in front of ``nn.DataParallel`` has to give."""
        return tuple(sum(self.sizes[start : start + self.gpus]) for start in range(0, len(self.sizes), self.gpus))

    @property
    def even(self) -> bool:
        """All micro-batches are of one size, so that their plain mean is the mean of the global batch."""
        return self.global_batch_size == self.batch_size * len(self.sizes)


def split(global_batch: int, max_gpu_batch: int, gpus: int) -> Split:
    """As few steps as ``max_gpu_batch`` allows, of equal sizes as far as that is possible.

    Args:
        global_batch: samples of one update, at least ``gpus``.
        max_gpu_batch: samples that one GPU can hold at a time, at least 1.
        gpus: at least 1.
    """
    if global_batch < gpus:
        raise usage("global_batch_size", global_batch, f"at least one sample for each of {gpus} GPUs")
    steps = -(-global_batch // (max_gpu_batch * gpus))
    sizes = tuple(size for step in shares(global_batch, steps) for size in shares(step, gpus))
    return Split(steps, max(sizes), sizes)


def shares(whole: int, parts: int) -> tuple[int, ...]:
    """``whole`` in ``parts`` whole numbers that differ by at most one, the larger ones first."""
    base, extra = divmod(whole, parts)
    return tuple(base + (index < extra) for index in range(parts))


def __getattr__(name: str) -> Any:
    if name in ATTRIBUTES:
        raise AttributeError(
            f"runai.elastic.{name} is set by runai.elastic.torch.init(global_batch_size, max_gpu_batch_size) or "
            "runai.elastic.keras.init(…): call one of them first"
        )
    raise AttributeError(f"module 'runai.elastic' has no attribute {name!r}")


def _init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Spread ``global_batch_size`` samples over ``gpus`` devices and set this module's attributes.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one device can hold at a time.
        gpus: devices; None counts the NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves, or takes this CPU for one.

    Raises UsageError, a ValueError, and leaves the attributes as they were.
    """
    global_batch_size = whole("global_batch_size", global_batch_size)
    max_gpu_batch_size = whole("max_gpu_batch_size", max_gpu_batch_size)
    gpus = gpu_count() or 1 if gpus is None else gpus
    gpus = whole("gpus", gpus, "a whole number: the GPU count must be at least 1")
    _publish(split(global_batch_size, max_gpu_batch_size, gpus))
    _set(_max_gpu_batch_size=max_gpu_batch_size)


def _set(**attributes: Any) -> None:
    """Attributes of this module, by whoever knows them now."""
    globals().update(attributes)


def _publish(parts: Split, *, master: bool = True) -> None:
    """Set the attributes, all of them or none."""
    globals().update(
        steps=parts.steps,
        batch_size=parts.batch_size,
        sizes=parts.steps_samples,
        global_batch_size=parts.global_batch_size,
        gpus=parts.gpus,
        master=master,
    )
    _log.info(
        "Spreading global batch size %d across %d GPU(s) each with %d step(s) of batch size %s%d",
        parts.global_batch_size,
        parts.gpus,
        parts.steps,
        "" if parts.even else "at most ",
        parts.batch_size,
    )
