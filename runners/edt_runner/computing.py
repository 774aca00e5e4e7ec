"""What an engine computes with, as far as it decides the bits of a result. Room: runners.

Plain names to plain values: what two engines both name must be equal in both, or their results may differ in the last
bits. Frameworks add their own to what is here (``Framework.computing``).
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""By these libraries are told which kernels to take."""
_FEATURES = ("avx", "amx", "fma", "f16c", "sse4", "asimd", "sve")
"""Beginnings of the names of instruction sets by which libraries choose kernels."""


def of_machine() -> dict[str, Any]:
    """What every framework depends on: the processor, and the libraries that choose kernels by it."""
    import numpy as np

    cpu = _processor(_read(Path("/proc/cpuinfo")))
    caches = sorted(
        f"L{_read(place / 'level').strip()} {_read(place / 'type').strip()} {_read(place / 'size').strip()}"
        for place in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    )
    return {
        "architecture": platform.machine(),
        "processor vendor": cpu.get("vendor_id") or cpu.get("CPU implementer", ""),
        "instruction sets": _features(cpu.get("flags") or cpu.get("Features", "")),
        "processor caches": ", ".join(caches),  # Eigen and oneDNN cut matrices by them
        "C library": " ".join(platform.libc_ver()),
        "numpy": np.__version__,
        **{name: os.environ.get(name, "unset") for name in _VARIABLES},
    }


def _processor(text: str) -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    lines = text.partition("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _features(flags: str) -> str:
    return " ".join(sorted(flag for flag in flags.split() if flag.startswith(_FEATURES)))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
