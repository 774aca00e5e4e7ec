"""Counts the NVIDIA GPUs that this process may use, without a framework.

A framework's own listing would open every GPU in this process, and nvidia-smi ignores CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import ctypes
import os

_UUID_SIZE = 96
"""Size in bytes of the buffer for a UUID; see NVML's nvmlDeviceGetUUID."""


def available() -> bool:
    """Whether this process may use a GPU."""
    return count() > 0


def count() -> int:
    """The number of GPUs that CUDA would show to this process, which CUDA_VISIBLE_DEVICES may limit; 0 without a
    driver."""
    return visible_of(installed(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible_of(uuids: list[str], wanted: str | None) -> int:
    """How many GPUs CUDA_VISIBLE_DEVICES leaves.

    This follows CUDA's own rules. A name is a number, or GPU- or MIG- and the beginning of a UUID. The list ends at the
    first name that names no GPU. If a GPU is named twice, no GPU is left.

    Args:
        uuids: UUIDs of all GPUs, in CUDA's order.
        wanted: the value of CUDA_VISIBLE_DEVICES; None: it is not set.
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
    """UUIDs of the machine's GPUs, as the driver's management library lists them; [] without that library."""
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
