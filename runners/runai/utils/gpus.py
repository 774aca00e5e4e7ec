"""NVIDIA GPUs that this process may use, counted without a framework.

A framework's own listing would open every GPU in this process, and nvidia-smi ignores CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import ctypes
import os

_UUID_SIZE = 96
"""Bytes that NVML asks for; see nvmlDeviceGetUUID."""


def available() -> bool:
    return count() > 0


def count() -> int:
    """Those that CUDA_VISIBLE_DEVICES leaves, as CUDA would show them to this process; 0: none, or no driver."""
    return visible_of(installed(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible_of(uuids: list[str], wanted: str | None) -> int:
    """How many of ``uuids``, in CUDA's order, a CUDA_VISIBLE_DEVICES of ``wanted`` leaves.

    CUDA's own reading: names stand for numbers, GPU- or MIG- and the beginning of a uuid; the list ends at the first
    that names no GPU, and one that is named twice leaves none.
    """
    if wanted is None:
        return len(uuids)
    chosen: list[str] = []
    for name in (part.strip() for part in wanted.split(",")):
        found = _find(name, uuids)
        if found is None:
            break
        if found in chosen:
            return 0
        chosen.append(found)
    return len(chosen)


def _find(name: str, uuids: list[str]) -> str | None:
    if name.startswith("MIG-"):
        return name if uuids else None
    if name.startswith("GPU-"):
        return next((uuid for uuid in uuids if uuid.startswith(name)), None)
    return uuids[int(name)] if name.isdecimal() and int(name) < len(uuids) else None


def installed() -> list[str]:
    """UUIDs of the machine's GPUs, as the driver's management library lists them; [] without one."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if library.nvmlInit_v2():
        return []
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        return [_uuid(library, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def _uuid(library: ctypes.CDLL, index: int) -> str:
    device, text = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_SIZE)
    failed = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) or library.nvmlDeviceGetUUID(
        device, text, _UUID_SIZE
    )
    return f"GPU-{index}" if failed else text.value.decode()
