"""How good a trained model is, measured by us on images it never saw. Room: examples; torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from edt_demo.settings import DIGITS


def held_out(weights: Path) -> float:
    """Share of the held-out images that the network with these weights recognises."""
    import torch

    script = digits_script()
    network = script.network()
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    _, test = script.datasets()
    images, targets = test.tensors
    with torch.no_grad():
        return float((network(images).argmax(dim=1) == targets).double().mean())


def training_samples() -> int:
    """Length of the training set."""
    return len(digits_script().datasets()[0])


def digits_script() -> ModuleType:
    """The user's script as a module: its network and its data, without training."""
    spec = importlib.util.spec_from_file_location("digits_main", DIGITS / "main.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
