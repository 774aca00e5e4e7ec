"""The environment variables a runner reads, one function each. Room: runners; standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping

from edt_runner.errors import UsageError

READ_AT_IMPORT = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "TORCH_",
    "PYTORCH_",
    "ATEN_",
    "TF_",
    "CUDA_",
    "NCCL_",
    "LD_",
    "PYTHON",
)
"""Prefixes of variables that libraries read when they are imported: a job that sets one cannot use a process
that has imported them already."""


def pull_weight_timeout() -> float:
    """EDT_PULL_WEIGHT_TIME_OUT: seconds a newcomer waits for the weights before it logs PULL_FAILED. Default 60."""
    return _number("EDT_PULL_WEIGHT_TIME_OUT", 60.0)


def pull_failed_limit() -> int:
    """EDT_PULL_FAILED_LIMITS: how often it asks again; at the failure after that it stops. Default 3."""
    return int(_number("EDT_PULL_FAILED_LIMITS", 3))


def cpu_slots() -> int:
    """EDT_CPU_SLOTS: CPU stand-ins for GPUs on this machine. Default: one a core."""
    return max(1, int(_number("EDT_CPU_SLOTS", usable_cores())))


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def devices() -> str:
    """EDT_DEVICES: ``auto`` (GPUs where there are some) or ``cpu``. Default auto."""
    value = os.environ.get("EDT_DEVICES", "auto").lower()
    if value not in ("auto", "cpu"):
        raise UsageError(f"EDT_DEVICES: got {value!r}, takes 'auto' or 'cpu'")
    return value


def seed() -> int:
    """EDT_SEED: seed of a training without a platform. Default 0."""
    return int(_number("EDT_SEED", 0))


def log_limit_bytes() -> int:
    """EDT_LOG_LIMIT_MIB: size at which a process's log file is turned over; one older part is kept. Default 64."""
    return max(1, int(_number("EDT_LOG_LIMIT_MIB", 64) * 1024 * 1024))


def sample_record() -> str | None:
    """EDT_SAMPLE_RECORD: folder in which engines note the samples of each committed step; unset: none."""
    return os.environ.get("EDT_SAMPLE_RECORD") or None


def fault() -> str | None:
    """EDT_FAULT: a fault to commit on purpose (``faults``); unset: none."""
    return os.environ.get("EDT_FAULT") or None


def gloo_interface() -> str | None:
    """GLOO_SOCKET_IFNAME: network interface of the data plane; unset: the one that has the letter's host."""
    return os.environ.get("GLOO_SOCKET_IFNAME") or None


def needs_cold_start(job_environ: Mapping[str, str]) -> bool:
    """Whether a job's variables must be in place before frameworks are imported."""
    return any(name.startswith(READ_AT_IMPORT) for name in job_environ)


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None or not text.strip():
        return float(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name}: got {text!r}, takes a number") from None
