"""Brings the weights of a trained model into the notebook's. Reads weights alone: nothing that runs code is loaded."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from pyedt.notebook.bundle import packages_of
from pyedt.notebook.errors import JobFailed

_FINAL = "model_epoch_final"
_IN_KERAS, _CONFIG = "model.weights.h5", "config.json"
"""Files in a .keras file."""


def load(job: str, model: Any, files: Path | zipfile.Path) -> None:
    """Give the model its trained weights and buffers.

    Args:
        job: the job's id, for messages.
        model: the notebook's model.
        files: the folder with the job's model files, or the zip of it.

    Raises:
        JobFailed: the job has saved no weights of such a model, or a Keras model cannot be built here.
    """
    folder = files / "train"
    if packages_of(model) == ["torch"]:
        _load_torch(job, model, folder / f"{_FINAL}.pth")
    else:
        _load_keras(job, model, folder)


def _load_torch(job: str, model: Any, path: Path | zipfile.Path) -> None:
    import torch

    if not path.is_file():
        raise JobFailed(job, f"it has saved no {path.name}")
    with path.open("rb") as file:
        state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state)


def _load_keras(job: str, model: Any, folder: Path | zipfile.Path) -> None:
    whole, weights = folder / f"{_FINAL}.keras", folder / f"{_FINAL}.weights.h5"
    with tempfile.TemporaryDirectory(prefix="edt-weights-") as temporary:
        target = Path(temporary) / _IN_KERAS
        if whole.is_file():
            with whole.open("rb") as file, zipfile.ZipFile(file) as archive:
                archive.extract(_IN_KERAS, temporary)
                build = json.loads(archive.read(_CONFIG)).get("build_config")
            if not model.built and build:
                model.build_from_config(build)  # its layers
                model.built = bool(model.weights)
        elif weights.is_file():
            target.write_bytes(weights.read_bytes())
        else:
            raise JobFailed(job, f"it has saved neither {whole.name} nor {weights.name}")
        if not model.built:
            raise JobFailed(
                job,
                "it has trained the model, but the notebook's model is not built, so there is nowhere to put its "
                "weights: download() gives them, and before train() a call of the model with a batch builds it",
            )
        model.load_weights(target)
