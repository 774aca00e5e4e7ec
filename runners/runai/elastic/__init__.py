"""The split of a global batch over this many GPUs.

``runai.elastic.torch.init`` or ``runai.elastic.keras.init`` sets these attributes of this module. Reading one of them
earlier raises an AttributeError that explains this.

    global_batch_size   samples of one update, as asked for
    gpus                devices that share an update; a machine without GPUs counts as one device
    steps               micro-batches that each device computes for one update
    batch_size          samples of one micro-batch on one device, at most the given maximum. If the global batch does
                        not divide evenly, this is the largest micro-batch
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
"""The most samples that one device can hold at a time, as given to ``init``."""
_log = logging.getLogger("runai")


@dataclass(frozen=True)
class Split:
    """How one update is divided: a global batch in micro-batches. None of them is larger than a GPU can hold, and no
    sample is left out."""

    steps: int
    """Micro-batches of each GPU."""
    batch_size: int
    """Samples of the largest micro-batch."""
    sizes: tuple[int, ...]
    """Samples of every micro-batch, ordered by step and then by GPU: steps x gpus numbers that differ by at most one.
    The last numbers are 0 if there are fewer samples than micro-batches."""

    @property
    def gpus(self) -> int:
        return len(self.sizes) // self.steps

    @property
    def global_batch_size(self) -> int:
        return sum(self.sizes)

    @property
    def steps_samples(self) -> tuple[int, ...]:
        """Samples of each step over all GPUs, which a loader for ``nn.DataParallel`` must give."""
        return tuple(sum(self.sizes[start : start + self.gpus]) for start in range(0, len(self.sizes), self.gpus))

    @property
    def even(self) -> bool:
        """Whether all micro-batches have the same size, so that their plain mean is the mean of the global batch."""
        return self.global_batch_size == self.batch_size * len(self.sizes)


def split(global_batch: int, max_gpu_batch: int, gpus: int) -> Split:
    """Divide a global batch into as few steps as ``max_gpu_batch`` allows, with sizes as equal as possible.

    Args:
        global_batch: samples of one update, at least ``gpus``.
        max_gpu_batch: samples that one GPU can hold at a time, at least 1.
        gpus: number of GPUs, at least 1.

    Raises:
        UsageError: ``global_batch`` is less than ``gpus``.
    """
    if global_batch < gpus:
        raise usage("global_batch_size", global_batch, f"at least one sample for each of {gpus} GPUs")
    steps = -(-global_batch // (max_gpu_batch * gpus))
    sizes = tuple(size for step in shares(global_batch, steps) for size in shares(step, gpus))
    return Split(steps, max(sizes), sizes)


def shares(whole: int, parts: int) -> tuple[int, ...]:
    """Divide ``whole`` into ``parts`` whole numbers that differ by at most one, the larger ones first."""
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
    """Divide ``global_batch_size`` samples among ``gpus`` devices and set this module's attributes.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one device can hold at a time.
        gpus: number of devices; None: the NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves, or this CPU as one device.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the attributes then stay as they were.
    """
    global_batch_size = whole("global_batch_size", global_batch_size)
    max_gpu_batch_size = whole("max_gpu_batch_size", max_gpu_batch_size)
    gpus = gpu_count() or 1 if gpus is None else gpus
    gpus = whole("gpus", gpus, "a whole number: the GPU count must be at least 1")
    _publish(split(global_batch_size, max_gpu_batch_size, gpus))
    _set(_max_gpu_batch_size=max_gpu_batch_size)


def _set(**attributes: Any) -> None:
    """Set some attributes of this module."""
    globals().update(attributes)


def _publish(parts: Split, *, master: bool = True) -> None:
    """Set all attributes that follow from a split."""
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
