"""What a machine has of GPUs and libraries. Run as a script, so that whoever asks makes no CUDA context of its own."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch

SHARES_A_GPU = (2, 30)
"""From this NCCL on two ranks can share a GPU, as an experiment (NCCL_MULTI_RANK_GPU_ENABLE=1)."""


@dataclass(frozen=True)
class Gpu:
    name: str
    processors: int
    """Streaming multiprocessors."""
    memory: int
    """Bytes."""
    capability: str
    mig: str


@dataclass(frozen=True)
class Machine:
    """Versions are empty where there is none."""

    gpus: tuple[Gpu, ...]
    cores: int
    driver: str
    cuda: str
    cudnn: str
    nccl: tuple[int, ...]
    torch: str
    python: str

    def lines(self) -> list[tuple[str, str]]:
        """For people: name and value."""
        found = [
            (
                f"GPU {number}",
                f"{gpu.name}, {gpu.processors} SMs, {gpu.memory / 2**30:.0f} GiB, sm {gpu.capability}, MIG {gpu.mig}",
            )
            for number, gpu in enumerate(self.gpus)
        ]
        found = found or [("GPU", "none")]
        found.append(("cores", str(self.cores)))
        found.append(("versions", f"Python {self.python}, torch {self.torch}, CUDA {self.cuda or '–'}"))
        found.append(("libraries", f"driver {self.driver or '–'}, cuDNN {self.cudnn or '–'}, NCCL {self.nccl_text}"))
        return found

    @property
    def nccl_text(self) -> str:
        return ".".join(map(str, self.nccl)) or "–"

    def why_no_nccl(self, engines: int) -> str:
        """Why so many engines cannot reduce over NCCL here; "": they can."""
        if not self.gpus:
            return "no GPU"
        if not self.nccl:
            return "this torch has no NCCL"
        if engines > len(self.gpus) and self.nccl[:2] < SHARES_A_GPU:
            return f"NCCL {self.nccl_text} refuses two ranks on one GPU"
        return ""


def visible(machine: Machine) -> list[str]:
    """The numbers or identifiers of the GPUs, as CUDA_VISIBLE_DEVICES of an engine takes them."""
    chosen = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    return (chosen or list(map(str, range(len(machine.gpus)))))[: len(machine.gpus)]


def ask() -> Machine:
    """Ask a new process."""
    asked = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, timeout=120)
    if asked.returncode:
        raise RuntimeError(f"torch does not say what this machine has: {asked.stderr.strip()[-500:]}")
    told = json.loads(asked.stdout.strip().rpartition("\n")[2])  # libraries may have said something before
    return Machine(**{**told, "gpus": tuple(Gpu(**gpu) for gpu in told["gpus"]), "nccl": tuple(told["nccl"])})


def _here() -> dict[str, Any]:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cudnn: Any = torch.backends.cudnn
    return {
        "gpus": [_gpu(number) for number in range(gpus)],
        "cores": len(os.sched_getaffinity(0)),
        "driver": _driver() if gpus else "",
        "cuda": torch.version.cuda or "",
        "cudnn": str(cudnn.version() or "") if gpus else "",
        "nccl": _nccl() if gpus else (),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _gpu(number: int) -> dict[str, Any]:
    facts = torch.cuda.get_device_properties(number)
    return {
        "name": facts.name,
        "processors": facts.multi_processor_count,
        "memory": facts.total_memory,
        "capability": f"{facts.major}.{facts.minor}",
        "mig": _mig(number),
    }


def _nccl() -> tuple[int, ...]:
    """The version of the library that torch has loaded; torch itself knows only the one that it was built with."""
    from torch.cuda import nccl

    found = ctypes.c_int()
    try:
        if ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(found)) == 0:
            return found.value // 10000, found.value // 100 % 100, found.value % 100
    except (OSError, AttributeError):  # it is part of torch's own library
        pass
    try:
        built: Any = nccl.version()  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError):  # a build without NCCL
        return ()
    return tuple(built[:3]) if isinstance(built, tuple) else ()


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
    except Exception:  # no NVML: the page says so, and the trainings do not need it
        return "not told by NVML"
    return found.decode() if isinstance(found, bytes) else str(found)


def _mig(number: int) -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        current, _ = pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(number))
    except Exception:  # a GPU that cannot be divided has no such mode
        return "not possible"
    return "on" if current else "off"


if __name__ == "__main__":
    print(json.dumps(_here()))
