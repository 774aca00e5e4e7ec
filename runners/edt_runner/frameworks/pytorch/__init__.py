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

    def enter(self, threads: int, seed: int) -> None:
        from edt_runner.frameworks.pytorch.determinism import prepare_environment

        prepare_environment()
        super().enter(threads, seed)

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        import torch

        from edt_runner.frameworks.pytorch import determinism

        found = {
            **super().computing(on_device=on_device),
            **determinism.settings(),
            "threads": torch.get_num_threads(),
            "default type": str(torch.get_default_dtype()),
            "oneDNN": torch.backends.mkldnn.enabled,
        }
        return found | (determinism.settings_of_gpu() if on_device and self.gpus() else {})


FRAMEWORK = PyTorch()
