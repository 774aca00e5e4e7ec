"""PyTorch's side of the runner: the code that knows torch's modules, optimizers and data sets.

Every process also uses torch to move the bytes of the data plane. This package is only used by jobs in PyTorch. This
module has what a process needs of PyTorch before there is a model.
"""

from __future__ import annotations

from typing import Any

from edt_runner.frameworks import Framework


class PyTorch(Framework):
    """PyTorch, as a process needs it before there is a model."""

    name = "pytorch"

    def warm(self) -> None:
        super().warm()
        import torch

        torch.optim.Adam([torch.nn.Parameter(torch.empty(1))])  # the first optimizer costs a second of lazy imports

    def gpus(self) -> int:
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        import torch

        found = {
            **super().computing(on_device=on_device),
            "threads": torch.get_num_threads(),
            "default type": str(torch.get_default_dtype()),
            "oneDNN": torch.backends.mkldnn.enabled,
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "matrix products": torch.get_float32_matmul_precision(),
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


FRAMEWORK = PyTorch()
