"""Which frameworks a job may name, and what clients are told of them. Room: api. Pure.

WMLA's catalogue has more names than this release runs; naming one of those is answered by a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edt_api.errors import ArgumentsInvalid


@dataclass(frozen=True)
class Runnable:
    """A framework that this release runs."""

    name: str
    """WMLA's name, matched by case."""
    app_name: str
    """What a job is called whose user does not say."""
    backend: str
    """What the supervisor imports."""
    description: str


RUNNABLE: Mapping[str, Runnable] = {
    "edtPyTorch": Runnable("edtPyTorch", "ElasticPyTorchTrain", "pytorch", "Elastic distributed training with PyTorch")
}

_OF_WMLA = frozenset({
    "PyTorch", "distPyTorch", "PyTorch041", "tensorflow", "disttensorflow", "disttensorflow_v1",
    "tensorflow1100", "ddlTensorFlow", "edtTensorflow", "edtKeras", "keras", "Caffe", "XGboost",
})  # fmt: skip
_RUN_NOW = ", ".join(RUNNABLE)


def runnable(name: str) -> Runnable:
    """The framework of this name. Raises ArgumentsInvalid for one that is not run."""
    found = RUNNABLE.get(name)
    if found is not None:
        return found
    known = f"{name}, a framework of WMLA" if name in _OF_WMLA else f"{name[:64]!r}, a framework nobody knows"
    raise ArgumentsInvalid("--exec-start", known, f"what this release runs: {_RUN_NOW}")
