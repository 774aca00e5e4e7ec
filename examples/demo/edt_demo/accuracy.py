"""How good a trained model is, measured by us on images it never saw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from edt_demo.settings import Framework


def held_out(framework: Framework, model: Path) -> float:
    """Share of the held-out images that the trained network in this file recognises."""
    script = digits_script(framework)
    return _with_keras(script, model) if framework.name == "tensorflow" else _with_torch(script, model)


def training_samples(framework: Framework) -> int:
    """Length of the training set."""
    return len(digits_script(framework).datasets()[0])


def digits_script(framework: Framework) -> ModuleType:
    """The user's script as a module: its network and its data, without training."""
    spec = importlib.util.spec_from_file_location(f"digits_{framework.name}", framework.script / "main.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_torch(script: ModuleType, model: Path) -> float:
    import torch

    network = script.network()
    network.load_state_dict(torch.load(model, weights_only=True))
    network.eval()
    _, test = script.datasets()
    images, targets = test.tensors
    with torch.no_grad():
        return float((network(images).argmax(dim=1) == targets).double().mean())


def _with_keras(script: ModuleType, model: Path) -> float:
    network = script.keras.models.load_model(model, compile=False)
    _, test = script.datasets()
    return float((network.predict_on_batch(test.images).argmax(axis=1) == test.targets).mean())
