"""What tests need of a machine, by name, and what has to be said where it is missing.

A test is marked with the name of what it needs. What is missing is deselected in one line, save where EDT_REQUIRE
names it: then the run fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Collection, Mapping

VARIABLE = "EDT_REQUIRE"
_OF_SLURM = ("slurmctld", "slurmd", "munged", "srun")


class Unmet(Exception):
    """EDT_REQUIRE names something that is unknown, or that this machine does not have. Its text is one sentence."""


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_kubernetes() -> bool:
    from support.kubernetes_cluster import has_kubernetes

    return has_kubernetes()


def _has_memory_cgroup() -> bool:
    from support.memory_cgroup import has_memory_cgroup

    return has_memory_cgroup()


def _has_docker() -> bool:
    from support.places import has_docker

    return has_docker()


def _has_chromium() -> bool:
    from support.browser import chromium

    return chromium() is not None


def _has_mpirun() -> bool:
    return shutil.which("mpirun") is not None


def _has_network_namespaces() -> bool:
    from support import partition

    return not partition.why_not()


def _has_slurm() -> bool:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return os.geteuid() == 0 and all(shutil.which(name, path=path) for name in _OF_SLURM)


def _has_tmpfs_mount() -> bool:
    from support.tmpfs_mount import has_tmpfs_mount

    return has_tmpfs_mount()


def has_tensorflow() -> bool:
    """Whether TensorFlow and both its Keras are installed, which is found out without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in ("tensorflow", "keras", "tf_keras"))


PROBES: Mapping[str, Callable[[], bool]] = {
    "chromium": _has_chromium,
    "cuda": _has_cuda,
    "docker": _has_docker,
    "kubernetes": _has_kubernetes,
    "memory_cgroup": _has_memory_cgroup,
    "mpirun": _has_mpirun,
    "network_namespaces": _has_network_namespaces,
    "slurm": _has_slurm,
    "tensorflow": has_tensorflow,
    "tmpfs_mount": _has_tmpfs_mount,
}
"""Each name, which is a marker too (pyproject.toml says what it stands for), and how to find out whether it is here."""


def required(text: str, known: Collection[str] = tuple(PROBES)) -> list[str]:
    """The names in EDT_REQUIRE, in order. Raises Unmet for a name that nobody knows."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise Unmet(f"{VARIABLE} names {name!r}, which is unknown; known are {', '.join(sorted(known))}")
    return list(dict.fromkeys(names))


def check(text: str, probes: Mapping[str, Callable[[], bool]] = PROBES) -> list[str]:
    """The names in EDT_REQUIRE, all of which are here. Raises Unmet for what is unknown or missing."""
    names = required(text, probes)
    missing = [name for name in names if not probes[name]()]
    if missing:
        raise Unmet(f"{VARIABLE} asks for {', '.join(missing)}, which this machine does not have")
    return names


def deselected(name: str, tests: int, files: int = 0) -> str:
    """The line that is printed for tests that need what is not here; ``files`` could not even be imported."""
    counted = [_count(tests, "test")] * (tests > 0) + [_count(files, "file of tests", "files of tests")] * (files > 0)
    verb = "needs" if tests + files == 1 else "need"
    return f"{' and '.join(counted)} {verb} {name}, which this machine does not have: deselected"


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
