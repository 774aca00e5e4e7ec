"""Finds the node's slots: its GPUs or CPU stand-ins. A node has slots of one kind only."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from edt_agent import gpus

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slot:
    """One place where an engine can train."""

    slot: str
    """The slot's id on this node."""
    device: str
    """``cpu``, or the UUID of the GPU or MIG device, which goes into CUDA_VISIBLE_DEVICES."""
    label: str
    """The slot's name for people."""
    model: str | None = None
    """Name of the GPU; None for a CPU stand-in, here and below."""
    memory_total_bytes: int | None = None
    """All memory of the GPU or MIG device; None: unknown."""
    compute_capability: str | None = None
    """Such as ``9.0``; None: unknown."""
    mig_profile: str | None = None
    """Such as ``1g.10gb``; None: it is no MIG device."""


def find_slots(devices: str, cpu_slots: int | None, environ: Mapping[str, str] = os.environ) -> tuple[Slot, ...]:
    """Find the node's slots.

    Args:
        devices: ``auto``: GPUs if there are any and ``cpu_slots`` is None, else CPU stand-ins. ``cpu``: CPU stand-ins.
        cpu_slots: number of CPU stand-ins; None: as many as cores.
        environ: the environment; CUDA_VISIBLE_DEVICES selects GPUs.
    """
    if devices == "auto" and cpu_slots is None and (found := _gpu_slots(environ.get("CUDA_VISIBLE_DEVICES"))):
        return found
    return tuple(Slot(str(n), "cpu", f"CPU stand-in {n}") for n in range(cpu_slots or cores()))


def cores() -> int:
    """Number of cores that this process may use. In a container they may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _gpu_slots(words: str | None) -> tuple[Slot, ...]:
    """A slot for each GPU and each MIG device that ``words``, the value of CUDA_VISIBLE_DEVICES, shows."""
    found = gpus.find()
    shown = gpus.visible(found, words)
    if found and not shown:
        log.warning("CUDA_VISIBLE_DEVICES=%s shows none of this machine's %d GPUs", words, len(found))
    return tuple(
        Slot(gpu.index, gpu.uuid, gpu.label, gpu.model, gpu.memory_total_bytes, gpu.compute_capability, gpu.mig_profile)
        for gpu in shown
    )
