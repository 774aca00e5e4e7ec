"""What a global batch means on this many GPUs. Room: runners; no framework.

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
from typing import Any

from runai._arguments import whole
from runai.elastic import _devices
from runai.elastic._split import Split, split

ATTRIBUTES = ("steps", "batch_size", "sizes", "global_batch_size", "gpus", "master")

_max_gpu_batch_size: int
"""Samples that one device can hold at a time, as asked for."""
_log = logging.getLogger("runai")


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
    gpus = _devices.visible() or 1 if gpus is None else gpus
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
    globals().pop("hvd", None)
    _log.info(
        "Spreading global batch size %d across %d GPU(s) each with %d step(s) of batch size %s%d",
        parts.global_batch_size,
        parts.gpus,
        parts.steps,
        "" if parts.even else "at most ",
        parts.batch_size,
    )
