"""A memory cgroup of a test's own, where root may make one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edt_contract.oom import OomCounter


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A cgroup below this process's own, in which processes may use so much. Raises OSError where there is none."""
    counted = OomCounter().file
    if counted is None or counted.name == "vmstat":
        raise FileNotFoundError("no memory cgroup")
    folder = counted.parent / f"edt-test-{os.getpid()}"
    folder.mkdir()
    try:
        old = counted.name == "memory.oom_control"
        limits = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if old else ("memory.max", "memory.swap.max")
        for name, value in zip(limits, (limit_bytes, limit_bytes if old else 0), strict=True):
            if name == limits[0] or (folder / name).exists():
                (folder / name).write_text(str(value))
        yield folder
    finally:
        folder.rmdir()


def has_memory_cgroup() -> bool:
    try:
        with memory_cgroup(1 << 26):
            return True
    except OSError:
        return False
