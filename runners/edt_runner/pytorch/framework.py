"""PyTorch before there is a model: imports, threads, seeds. Room: runners; torch."""

from __future__ import annotations

import importlib


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

    def versions(self) -> dict[str, str]:
        import torch

        return {"torch": torch.__version__}


FRAMEWORK = PyTorch()
