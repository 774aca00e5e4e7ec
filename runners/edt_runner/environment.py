"""The environment variables a runner reads, one function each. Room: runners; standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping

from edt_runner.errors import UsageError

READ_AT_IMPORT = (
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "MALLOC_", "LD_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "ATEN_", "TF_", "KERAS_", "XLA_", "CUDA_", "NCCL_", "GLOO_"),
)
"""Prefixes of variables that Python, a framework or its libraries read once, when they are loaded: a job that sets one
cannot use a process that has loaded them already."""

KERAS2_VARIABLE = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own: its Keras is Keras 2."""
KERAS2_VALUES = frozenset({"1", "true", "True"})
"""All that TensorFlow takes for yes."""

_OF_ALL = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "x"}
_OF_TENSORFLOW = {
    "KERAS_BACKEND": "tensorflow",  # a keras.json in somebody's home may say another
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # which kernels compute is not for the processor to choose; these are the quick ones
    KERAS2_VARIABLE: "0",
}


def supervisor_environ(framework: str, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every supervisor of a framework is started with, so that its children compute the same on every node:
    what a zygote needs to stay one (``supervisor.zygote``), an equal hash seed, which gives equal orders of sets, and
    what the framework reads when it is imported.

    ``chosen``: what a person has set; of the last kind it wins.
    """
    read = _OF_TENSORFLOW if framework == "tensorflow" else {}
    return {name: (chosen or {}).get(name, value) for name, value in read.items()} | _OF_ALL


def must_be_cold(wanted: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a job wants otherwise what is read when a framework is loaded; ``given``: what a warm process has."""
    return any(name.startswith(READ_AT_IMPORT) and given.get(name) != value for name, value in wanted.items())


def keras2() -> bool:
    """TF_USE_LEGACY_KERAS: TensorFlow's Keras is to be Keras 2; read as TensorFlow reads it."""
    return os.environ.get(KERAS2_VARIABLE) in KERAS2_VALUES


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


def hang_seconds() -> float:
    """EDT_HANG_SECONDS: how long a micro-batch, or a reduction, may take before it counts as hung; ten times the
    longest one so far where that is more. Default 60."""
    return max(0.1, _number("EDT_HANG_SECONDS", 60.0))


def room_seconds() -> float:
    """EDT_ROOM_SECONDS: how long room is waited for where the disk does not take the trained model. Default 300."""
    return max(0.0, _number("EDT_ROOM_SECONDS", 300.0))


def gloo_interface() -> str | None:
    """GLOO_SOCKET_IFNAME: network interface of the data plane; unset: the one that has the letter's host."""
    return os.environ.get("GLOO_SOCKET_IFNAME") or None


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None or not text.strip():
        return float(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name}: got {text!r}, takes a number") from None
