"""Room: runners, agent. The node's slots: its GPUs as NVML shows them, or CPU stand-ins.

Touches the NVIDIA driver (asks, never sets). CUDA itself is not touched: a process that did could not fork engines.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One place where an engine can train."""

    slot: str
    """Its id on this node."""
    device: str
    """``cpu``, or what an engine puts into CUDA_VISIBLE_DEVICES."""
    label: str
    """What a person reads."""

    def to_json_object(self) -> dict[str, Any]:
        return asdict(self)


def find_slots(devices: str, cpu_slots: int | None, environ: Mapping[str, str] = os.environ) -> tuple[Slot, ...]:
    """The node's slots. With ``auto``, GPUs win over CPU stand-ins unless a number of the latter was asked for."""
    if devices == "auto" and cpu_slots is None and (found := gpus(environ.get("CUDA_VISIBLE_DEVICES"))):
        return found
    return tuple(Slot(str(n), "cpu", f"CPU stand-in {n}") for n in range(cpu_slots or cores()))


def cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine's."""
    return len(os.sched_getaffinity(0))


def gpus(visible: str | None = None) -> tuple[Slot, ...]:
    """The GPUs that NVML shows, by UUID; none where there is no driver. ``visible`` narrows them as CUDA would."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle))
            found.append(Slot(str(index), uuid, name))
        return narrowed(tuple(found), visible)
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def narrowed(found: tuple[Slot, ...], visible: str | None) -> tuple[Slot, ...]:
    """Only what CUDA_VISIBLE_DEVICES names: indices or beginnings of UUIDs, up to the first that is neither."""
    if visible is None:
        return found
    chosen: list[Slot] = []
    for word in (part.strip() for part in visible.split(",")):
        match = [slot for slot in found if word and (slot.slot == word or slot.device.startswith(word))]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
