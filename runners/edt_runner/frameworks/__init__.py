"""What the runner needs from a framework before there is a model, and how it gets a framework by name.

``trainable`` defines what the runner needs from a model and its data. ``flat`` defines the layout of flat vectors.
``pytorch`` and ``tensorflow`` implement both for their frameworks.

Importing this package imports no framework; a framework is imported when its methods are called. So a job in PyTorch
never imports TensorFlow, and a supervisor can set environment variables before any library reads them at import. torch
itself is imported in every process that trains, since its tensors carry the data of both frameworks.
"""

from __future__ import annotations

import importlib
import os
import platform
from pathlib import Path
from typing import Any, Protocol, cast

from edt_contract.frameworks import FRAMEWORKS
from edt_runner.errors import RunnerError

_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Environment variables by which a user chooses the kernels of libraries."""
_VARIABLES_OF_GPUS = ("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE")
"""The same on GPUs. The first one is also set where there is none."""
_FEATURES = ("avx", "amx", "fma", "f16c", "sse4", "asimd", "sve")
"""Prefixes of the names of instruction sets by which libraries choose kernels."""


class Framework(Protocol):
    """One framework, as a process needs it before there is a model.

    Its methods import the framework, so a supervisor can choose it by name before it imports it.
    """

    name: str

    def warm(self) -> None:
        """Import what child processes will need, so that they share its memory.

        This executes no op and starts no thread, so that the process can be forked.
        """
        import safetensors.torch  # noqa: F401 - imported for its children
        import torch.distributed
        import torch.utils.data  # noqa: F401

        importlib.import_module("edt_runner.launch.train")  # what user code calls; the supervisor uses none of it
        importlib.import_module(f"edt_runner.frameworks.{self.name}.trainable")

    def enter(self, threads: int, seed: int) -> None:
        """Set threads, seeds and what makes results repeatable. Called in a newly forked process, before user code.

        Args:
            threads: threads of the framework on the processor.
            seed: for the framework's global generators.
        """
        import torch

        torch.set_num_threads(threads)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Seed the framework's global generators, on all devices that are in use.

        ``torch.manual_seed`` would do the same for torch, but takes 0.4 ms, because it looks for devices of all kinds.
        """
        import torch

        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(seed)

    def seed_step(self, seed: int) -> None:
        """Seed the generators of Python, NumPy and torch before a pass, and before a step is taken: an optimizer and
        its hooks may draw numbers, which must be the same in every engine."""
        from edt_runner.seeds import seed_python  # it imports NumPy, which starts threads, and supervisors import this

        seed_python(seed)
        Framework.seed(self, seed)

    def gpus(self) -> int:
        """Number of GPUs that this process sees and the framework can use."""

    def explain(self, error: BaseException) -> str | None:
        """One sentence on the error that ended a user's script, if the error's own text does not help; else None."""
        return None

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        """What this process computes with, as far as it decides the bits of a result.

        Where two engines name the same thing, its value must be equal in both; otherwise their results may differ in
        the last bits. Called after user code has changed the settings that it wants to change. This base method names
        what every framework depends on: the processor, and the libraries that choose kernels by it.

        Args:
            on_device: the process computes on its first GPU, if it sees one.

        Returns:
            Plain names to plain values.
        """
        import numpy as np
        import torch

        cpu = _processor(_read(Path("/proc/cpuinfo")))
        flags = cpu.get("flags") or cpu.get("Features", "")
        caches = sorted(
            f"L{_read(place / 'level').strip()} {_read(place / 'type').strip()} {_read(place / 'size').strip()}"
            for place in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
        )
        return {
            "architecture": platform.machine(),
            "processor vendor": cpu.get("vendor_id") or cpu.get("CPU implementer", ""),
            "instruction sets": " ".join(sorted(flag for flag in flags.split() if flag.startswith(_FEATURES))),
            "processor caches": ", ".join(caches),  # Eigen and oneDNN choose the sizes of blocks by them
            "C library": " ".join(platform.libc_ver()),
            "numpy": np.__version__,
            **{name: os.environ.get(name, "unset") for name in _VARIABLES + (_VARIABLES_OF_GPUS if on_device else ())},
            **self.versions(),
            "framework": self.name,
            "CPU capability": torch.backends.cpu.get_cpu_capability(),
            "device": "cpu",
        }

    def versions(self) -> dict[str, str]:
        """Versions by package, for a checkpoint's manifest."""
        import torch

        return {"torch": torch.__version__}


def by_name(name: str) -> Framework:
    """The framework of that name, one of ``FRAMEWORKS``.

    Raises:
        RunnerError: this release does not support it.
    """
    if name not in FRAMEWORKS:
        raise RunnerError(f"framework: got {name!r}, takes {' or '.join(map(repr, FRAMEWORKS))}")
    return cast(Framework, importlib.import_module(f"edt_runner.frameworks.{name}").FRAMEWORK)


def _processor(text: str) -> dict[str, str]:
    """Facts about the first processor in the text of /proc/cpuinfo, by name."""
    lines = text.partition("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
