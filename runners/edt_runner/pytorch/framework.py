"""PyTorch before there is a model: imports, threads, seeds. Room: runners; torch."""

from __future__ import annotations

import importlib
from typing import Any

from edt_runner.computing import of_machine


class PyTorch:
    """See ``Framework``. torch is imported by its methods: a supervisor chooses by name before it warms up."""

    name = "pytorch"

    def warm(self) -> None:
        import safetensors.torch  # noqa: F401 - imported for its children
        import torch
        import torch.distributed
        import torch.utils.data

        importlib.import_module("edt_runner.play")  # what user code calls; the supervisor itself uses none of it
        importlib.import_module("edt_runner.pytorch.trainable")
        torch.optim.Adam([torch.nn.Parameter(torch.empty(1))])  # the first optimizer costs a second of lazy imports

    def enter(self, threads: int, seed: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Those of all devices included."""
        import torch

        torch.manual_seed(seed)

    def gpus(self) -> int:
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def explain(self, error: BaseException) -> None:
        """Its words do."""

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        import torch

        found = {
            **of_machine(),
            "framework": self.name,
            "torch": torch.__version__,
            "CPU capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "default type": str(torch.get_default_dtype()),
            "oneDNN": torch.backends.mkldnn.enabled,
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "matrix products": torch.get_float32_matmul_precision(),
            "device": "cpu",
        }
        if on_device and self.gpus():
            found |= {
                "device": torch.cuda.get_device_name(0),
                "device capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
                "CUDA": str(torch.version.cuda),
                "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
                "cuDNN deterministic": torch.backends.cudnn.deterministic,
                "cuDNN benchmark": torch.backends.cudnn.benchmark,
                "TF32 in matrix products": torch.backends.cuda.matmul.allow_tf32,
                "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
            }
        return found

    def versions(self) -> dict[str, str]:
        import torch

        return {"torch": torch.__version__}


FRAMEWORK = PyTorch()
