"""The environment of the processes on a node: what every supervisor starts with, and what marks ours.

Agents and the local launcher write it; supervisors, engines and whoever adopts or kills processes read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

TAG_VARIABLE = "EDT_TAG"
"""Environment variable that marks every process of one home. Who adopts processes reads it from /proc."""

READ_AT_IMPORT = (
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "MALLOC_", "LD_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "ATEN_", "TF_", "KERAS_", "XLA_", "CUDA_", "NCCL_", "GLOO_"),
)
"""Prefixes of variables that Python, a framework or its libraries read once, when they are loaded: a job that sets one
cannot use a process that has loaded them already."""

KERAS2_VARIABLE = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own: its Keras is Keras 2."""
KERAS2_VALUES = frozenset({"1", "true", "True"})
"""All that TensorFlow takes for yes."""

_OF_ALL = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "x"}
_OF_TENSORFLOW = {
    "KERAS_BACKEND": "tensorflow",  # a keras.json in somebody's home may say another
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # which kernels compute is not for the processor to choose; these are the quick ones
    KERAS2_VARIABLE: "0",
}


def supervisor_environ(framework: str, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that every supervisor of a framework is started with, so that its children compute the same on every
    node: what keeps it single-threaded, so that it can fork; an equal hash seed, so that sets have equal orders; and
    what the framework reads when it is imported.

    Args:
        framework: ``pytorch`` or ``tensorflow``.
        chosen: variables that a person has set; they replace those that the framework reads when it is imported.
    """
    read = _OF_TENSORFLOW if framework == "tensorflow" else {}
    return {name: (chosen or {}).get(name, value) for name, value in read.items()} | _OF_ALL


def must_be_cold(wanted: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a job sets a variable that is read when a framework is loaded, so that a warm process will not do.

    Args:
        wanted: the variables that the job sets.
        given: the variables of the warm process.
    """
    return any(name.startswith(READ_AT_IMPORT) and given.get(name) != value for name, value in wanted.items())


def keras2() -> bool:
    """Whether TF_USE_LEGACY_KERAS asks for Keras 2, by TensorFlow's own rule."""
    return os.environ.get(KERAS2_VARIABLE) in KERAS2_VALUES
