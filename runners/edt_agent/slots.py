"""The node's slots: its GPUs or CPU stand-ins.

GPUs are read through NVML. CUDA itself is not used, because a process that has used it cannot fork engines.
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
    """Its id on this node."""
    device: str
    """``cpu``, or the GPU's UUID, which goes into CUDA_VISIBLE_DEVICES."""
    label: str
    """Its name for people."""


def find_slots(devices: str, cpu_slots: int | None, environ: Mapping[str, str] = os.environ) -> tuple[Slot, ...]:
    """The node's slots. ``auto`` means GPUs if there are any, unless ``cpu_slots`` asks for CPU stand-ins."""
    if devices == "auto" and cpu_slots is None and (found := gpus(environ.get("CUDA_VISIBLE_DEVICES"))):
        return found
    return tuple(Slot(str(n), "cpu", f"CPU stand-in {n}") for n in range(cpu_slots or cores()))


def cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine's."""
    return len(os.sched_getaffinity(0))


def gpus(visible: str | None = None) -> tuple[Slot, ...]:
    """The GPUs that NVML shows; none without a driver. ``visible``: the value of CUDA_VISIBLE_DEVICES."""
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
    """The slots that CUDA_VISIBLE_DEVICES names: indices or beginnings of UUIDs, up to the first that is neither."""
    if visible is None:
        return found
    chosen: list[Slot] = []
    for word in (part.strip() for part in visible.split(",")):
        match = [slot for slot in found if word and (slot.slot == word or slot.device.startswith(word))]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen)
