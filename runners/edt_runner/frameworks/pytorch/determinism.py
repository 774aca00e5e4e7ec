"""Deterministic kernels on a GPU, and what happens where an op has none.

torch has two modes. In strict mode an op without a deterministic kernel raises an error. With ``warn_only`` it warns
and computes; but then attention does not choose its deterministic kernels either, although it has some. So forward and
backward passes run in strict mode, and everything else with ``warn_only``: nothing may fail in the middle of an
optimizer's step, and what a user's callback computes need not be deterministic.

If a pass raises such an error, the op's name ends the guarantee of exactness. From then on passes run with
``warn_only``, too. The pass itself is lost. Usually that is a trial pass, which is repeated. If it is one of the
training, it has already given away parts of its vector, so the step is tried again. The other engines need not know:
their kernels stay deterministic, and what was reduced is the same for all.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edt_runner.errors import PeerLost

_WHY = "has no deterministic implementation on this device"
_NAMED = re.compile(r"^(.+?) (?:does not have a deterministic|defaults to a non-deterministic)", re.MULTILINE)
_LACKS = re.compile("determinis|No available kernel", re.IGNORECASE)
"""What is in the text of an error of strict mode. Attention has no available kernel if the user allows only cuDNN's."""
_MOST_TEXT = 200
_WARNINGS = ".*(does not have a deterministic implementation|defaults to a non-deterministic algorithm)"
_CUBLAS = ("nvidia-cublas", "nvidia-cublas-cu12")
"""Packages that cuBLAS comes in."""


def _nobody(what: str, why: str) -> None:
    """Nobody has asked for determinism."""


class Determinism:
    """The mode of this process. It does nothing before ``ask``, which is called on a GPU only."""

    def __init__(self) -> None:
        self._end_guarantee: Callable[[str, str], None] = _nobody
        self.is_strict = False
        """Whether passes run in strict mode."""
        self._cudnn_attention = False
        """Whether the user lets attention use cuDNN."""

    def ask(self, end_guarantee: Callable[[str, str], None]) -> None:
        """Ask for deterministic kernels.

        Args:
            end_guarantee: called with an op that has none, and a reason; more than once for the same op.
        """
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Otherwise torch would fill all new memory. Nothing of the platform reads memory that it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False  # with it each process would choose algorithms by its own timings
        torch.backends.cudnn.deterministic = True
        cuda: Any = torch.backends.cuda
        self._cudnn_attention = self._cudnn_attention or cuda.cudnn_sdp_enabled()
        cuda.enable_cudnn_sdp(False)  # as in strict mode; with ``warn_only`` torch would use it without a warning
        if self._end_guarantee is _nobody:
            self._listen()
        self._end_guarantee, self.is_strict = end_guarantee, True

    @contextmanager
    def strict(self) -> Iterator[None]:
        """A context for a forward pass and its backward pass.

        Raises:
            PeerLost: an op has no deterministic kernel, and passes run with ``warn_only`` from now on. The step has to
                be tried again.
        """
        if not self.is_strict:
            yield
            return
        torch.use_deterministic_algorithms(True)
        try:
            yield
        except RuntimeError as error:
            op = op_that_raised(error)
            if op is None:
                raise
            self._give_up(op)
            raise PeerLost(f"{op} {_WHY}, so the step is tried again") from error
        finally:
            torch.use_deterministic_algorithms(True, warn_only=True)

    def _give_up(self, op: str) -> None:
        cuda: Any = torch.backends.cuda
        cuda.enable_cudnn_sdp(self._cudnn_attention)
        self.is_strict = False
        self._end_guarantee(op, _WHY)

    def settle(self, run: Callable[[], None]) -> None:
        """Run a trial pass. It is run again if it finds an op without a deterministic kernel.

        Args:
            run: runs the pass, in ``strict``.
        """
        before = self.is_strict
        try:
            run()
        except PeerLost:
            if self.is_strict is before:
                raise
            run()

    def _listen(self) -> None:
        """Let torch's warnings end the guarantee. The user sees each of them once."""
        warnings.filterwarnings("always", message=_WARNINGS)
        show, known = warnings.showwarning, set[str]()

        def showwarning(message: Warning | str, *rest: Any, **named: Any) -> None:
            text = str(message)
            if re.match(_WARNINGS, text):
                self._end_guarantee(_name(text), _WHY)
                if text in known:
                    return
                known.add(text)
            show(message, *rest, **named)

        warnings.showwarning = showwarning


determinism = Determinism()
"""There is one, as torch's modes are those of the process."""


def op_that_raised(error: RuntimeError) -> str | None:
    """The op that has no deterministic kernel, or the first line of the error if it names none. None: the error has
    another cause."""
    text = str(error)
    return _name(text) if _LACKS.search(text) else None


def prepare_environment() -> None:
    """Set what cuBLAS reads when it is first used: memory of one size, so that its sums have one order."""
    if torch.version.cuda is not None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


# ── what decides bits ─────────────────────────────────────────────────────────────────────────────────────────
def settings() -> dict[str, Any]:
    """torch's settings that decide the bits of a result on any device, by name."""
    backends: Any = torch.backends
    return {
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matrix products": _matmul_precision(),
        "precision of float32": " ".join(
            str(part.fp32_precision)
            for part in (backends, backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn)
        ),
        "attention": _attention(),
    }


def settings_of_gpu() -> dict[str, Any]:
    """The GPU of this process, its libraries, and torch's settings for it, by name.

    cuBLAS promises equal bits only on GPUs of one architecture with one number of multiprocessors. A MIG device has
    fewer of them.
    """
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    gpu = torch.cuda.get_device_properties(0)
    return {
        "device": gpu.name,
        "device capability": f"{gpu.major}.{gpu.minor}",
        "multiprocessors": gpu.multi_processor_count,
        "MIG": mig_profile(gpu.name, os.environ.get("CUDA_VISIBLE_DEVICES", "")),
        "CUDA": str(torch.version.cuda),
        "cuDNN": str(cudnn.version()),
        "cuBLAS": _cublas(),
        "cuDNN deterministic": cudnn.deterministic,
        "cuDNN benchmark": cudnn.benchmark,
        "precision of float32 on GPUs": " ".join(
            str(part.fp32_precision) for part in (cuda.matmul, cudnn.conv, cudnn.rnn)
        ),
        "library of matrix products": str(cuda.preferred_blas_library()),
        "linear algebra": str(cuda.preferred_linalg_library()),
        "sums in reduced precision": " ".join(
            str(getattr(cuda.matmul, f"allow_{what}", None))
            for what in (
                "fp16_reduced_precision_reduction",
                "bf16_reduced_precision_reduction",
                "fp16_accumulation",
            )
        ),
    }


def mig_profile(name: str, visible: str) -> str:
    """The profile of a MIG device, such as ``1g.10gb``; empty: the GPU is whole.

    Args:
        name: the device's name as CUDA tells it.
        visible: the environment's CUDA_VISIBLE_DEVICES.
    """
    found = re.search(r"\bMIG (\S+)", name)
    if found:
        return found[1]
    return "unknown" if visible.startswith("MIG-") else ""


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # the user has set it by ``fp32_precision``, and torch refuses to translate it
        return "by fp32_precision"


def _attention() -> str:
    """The kinds of kernels that attention may choose from."""
    cuda: Any = torch.backends.cuda
    kinds = {
        "flash": cuda.flash_sdp_enabled(),
        "memory-efficient": cuda.mem_efficient_sdp_enabled(),
        "plain": cuda.math_sdp_enabled(),
        "cuDNN": cuda.cudnn_sdp_enabled(),
        "plain in reduced precision": cuda.fp16_bf16_reduction_math_sdp_allowed(),
    }
    return ", ".join(name for name, enabled in kinds.items() if enabled)


def _cublas() -> str:
    """The version of cuBLAS, if it came with torch; else empty."""
    for name in _CUBLAS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _name(text: str) -> str:
    if "CuBLAS" in text:  # the environment has a value that cuBLAS may not be deterministic with
        return f"cuBLAS with CUBLAS_WORKSPACE_CONFIG={os.environ.get('CUBLAS_WORKSPACE_CONFIG', '')}"
    found = _NAMED.search(text)
    return found[1] if found else text.strip().partition("\n")[0][:_MOST_TEXT]
