"""Finds the node's slots: its GPUs or CPU stand-ins.

GPUs are found through NVML, which does not initialise CUDA. A process that has initialised CUDA cannot fork engines.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slot:
    """One place where an engine can train."""

    slot: str
    """The slot's id on this node."""
    device: str
    """``cpu``, or the GPU's UUID, which goes into CUDA_VISIBLE_DEVICES."""
    label: str
    """The slot's name for people."""


def find_slots(devices: str, cpu_slots: int | None, environ: Mapping[str, str] = os.environ) -> tuple[Slot, ...]:
    """Find the node's slots.

    Args:
        devices: ``auto``: GPUs if there are any and ``cpu_slots`` is None, else CPU stand-ins. ``cpu``: CPU stand-ins.
        cpu_slots: number of CPU stand-ins; None: as many as cores.
        environ: the environment; CUDA_VISIBLE_DEVICES selects GPUs.
    """
    if devices == "auto" and cpu_slots is None and (found := gpus(environ.get("CUDA_VISIBLE_DEVICES"))):
        return found
    return tuple(Slot(str(n), "cpu", f"CPU stand-in {n}") for n in range(cpu_slots or cores()))


def cores() -> int:
    """Number of cores that this process may use. In a container they may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def gpus(visible: str | None = None) -> tuple[Slot, ...]:
    """The GPUs that NVML shows; without a driver there are none. ``visible``: the value of CUDA_VISIBLE_DEVICES."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(Slot(str(index), pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)))
        return visible_slots(tuple(found), visible)
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible_slots(found: tuple[Slot, ...], visible: str | None) -> tuple[Slot, ...]:
    """The slots that CUDA_VISIBLE_DEVICES names by indices or beginnings of UUIDs. As in CUDA, the first invalid entry
    ends the list. None: all slots."""
    if visible is None:
        return found
    chosen: list[Slot] = []
    for word in (part.strip() for part in visible.split(",")):
        match = [slot for slot in found if word and (slot.slot == word or slot.device.startswith(word))]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen)
