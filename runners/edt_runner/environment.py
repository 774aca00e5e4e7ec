"""The environment variables that the processes of a training read. Each function reads one variable.

A function raises UsageError if the value of its variable is not valid.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from edt_runner.errors import usage


def pull_weight_timeout() -> float:
    """EDT_PULL_WEIGHT_TIME_OUT: seconds that a joining engine waits for weights before it logs PULL_FAILED. Default
    60."""
    return _number("EDT_PULL_WEIGHT_TIME_OUT", 60.0)


def pull_failed_limit() -> int:
    """EDT_PULL_FAILED_LIMITS: how often a joining engine asks again after PULL_FAILED; after one more failure it ends.
    Default 3."""
    return int(_finite("EDT_PULL_FAILED_LIMITS", 3))


def cpu_slots() -> int:
    """EDT_CPU_SLOTS: number of CPU stand-ins for GPUs on this machine, at least 1. Default: one for each core."""
    return max(1, int(_finite("EDT_CPU_SLOTS", usable_cores())))


def usable_cores() -> int:
    """Return the number of cores on which this process may run. This reads no variable."""
    return len(os.sched_getaffinity(0))


def devices() -> str:
    """EDT_DEVICES: ``auto`` (GPUs if there are any) or ``cpu``. Default ``auto``."""
    value = os.environ.get("EDT_DEVICES", "auto").lower()
    if value not in ("auto", "cpu"):
        raise usage("EDT_DEVICES", value, "'auto' or 'cpu'")
    return value


def seed() -> int:
    """EDT_SEED: seed of a training without a platform. Default 0."""
    return int(_finite("EDT_SEED", 0))


def log_limit_bytes() -> int:
    """EDT_LOG_LIMIT_MIB: size in MiB at which a process's log file is rotated; one older file is kept. Default 64.

    Returns:
        The size in bytes.
    """
    return max(1, int(_finite("EDT_LOG_LIMIT_MIB", 64) * 1024 * 1024))


def fabric_home() -> str:
    """Return the folder to which FABRIC_HOME is set for a job's processes, if the job itself does not set it. Scripts
    for WMLA look for ``libs`` in it. This reads no variable."""
    return str(Path(__file__).resolve().parent / "fabric_home")


def sample_record() -> str | None:
    """EDT_SAMPLE_RECORD: folder in which engines record the samples of each committed step; unset: no record."""
    return os.environ.get("EDT_SAMPLE_RECORD") or None


def profile_step() -> bool:
    """EDT_PROFILE_STEP: 1: each engine prints where the time of its steps goes, about every 10 seconds and at the end.
    Default 0."""
    value = os.environ.get("EDT_PROFILE_STEP", "").strip() or "0"
    if value not in ("0", "1"):
        raise usage("EDT_PROFILE_STEP", value, "0 or 1")
    return value == "1"


def fault() -> str | None:
    """EDT_FAULT: a fault to make on purpose, for tests (``engine.step_runner``); unset: no fault."""
    return os.environ.get("EDT_FAULT") or None


def hang_seconds() -> float:
    """EDT_HANG_SECONDS: seconds after which a micro-batch or a reduction counts as hung; ten times the longest
    micro-batch so far if that is more. Default 60, at least 0.1."""
    return max(0.1, _number("EDT_HANG_SECONDS", 60.0))


def room_seconds() -> float:
    """EDT_ROOM_SECONDS: seconds that an engine waits for room if the trained model does not fit on the disk. Default
    300."""
    return max(0.0, _number("EDT_ROOM_SECONDS", 300.0))


def gloo_interface() -> str | None:
    """GLOO_SOCKET_IFNAME: network interface over which tensors are sent; unset: the interface with the address of the
    attempt spec's host."""
    return os.environ.get("GLOO_SOCKET_IFNAME") or None


def faster_interface() -> str | None:
    """EDT_FASTER_IFNAME: network interface of a faster network between all nodes. Each group of engines begins over the
    ordinary network, and its reductions change over as soon as all engines are connected over this one. Unset: none."""
    return os.environ.get("EDT_FASTER_IFNAME") or None


def collectives() -> str:
    """EDT_COLLECTIVES: what reductions between GPUs go over. ``auto``: NCCL, as soon as it is connected. ``gloo``:
    never NCCL; sums go through host memory. ``over-gloo``: as ``auto``, but gloo does what NCCL would do, without GPUs;
    for tests. Default ``auto``."""
    value = os.environ.get("EDT_COLLECTIVES", "").strip() or "auto"
    if value not in ("auto", "gloo", "over-gloo"):
        raise usage("EDT_COLLECTIVES", value, "auto, gloo or over-gloo")
    return value


def _finite(name: str, default: float) -> float:
    value = _number(name, default)
    if math.isinf(value):
        raise usage(name, os.environ.get(name), "a finite number")
    return value


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None or not text.strip():
        return float(default)
    with contextlib.suppress(ValueError):
        if not math.isnan(value := float(text)):
            return value
    raise usage(name, text, "a number")
