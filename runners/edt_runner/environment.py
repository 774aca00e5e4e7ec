"""The environment variables that a training's processes read, one function each."""

from __future__ import annotations

import os

from edt_runner.errors import UsageError


def pull_weight_timeout() -> float:
    """EDT_PULL_WEIGHT_TIME_OUT: seconds that a joining engine waits for weights before it logs PULL_FAILED; 60."""
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
    """EDT_SAMPLE_RECORD: folder in which engines record the samples of each committed step; unset: none."""
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
    """GLOO_SOCKET_IFNAME: network interface that tensors go over; unset: the one that has the spec's host."""
    return os.environ.get("GLOO_SOCKET_IFNAME") or None


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None or not text.strip():
        return float(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name}: got {text!r}, takes a number") from None
