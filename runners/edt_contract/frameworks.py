"""The table of the frameworks for which there are runners. The scheduler, the agent and the runner read it.

A new one needs an entry in ``FRAMEWORKS``, a package of its name in ``edt_runner.frameworks``, and the other changes
that docs/where.md lists. What users may name as a job's framework is in ``edt_scheduler.model.catalogue``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

KERAS2_VARIABLE = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own variable. If it is set to one of ``KERAS2_VALUES``, ``tf.keras`` is Keras 2."""
KERAS2_VALUES = frozenset({"1", "true", "True"})
"""The values that TensorFlow accepts as true."""


@dataclass(frozen=True)
class SupportedFramework:
    """One framework: the facts that processes need which do not import it."""

    name: str
    """Its name in specs and settings."""
    package: str
    """The Python package that users import; openedt's extra has the same name."""
    image: str
    """The container image of its jobs, if neither the node nor the job names another image."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that it reads when it is imported, with the values for its supervisors."""


_ALL = (
    SupportedFramework(
        "pytorch",
        package="torch",
        image="openedt/runner-torch:latest",
    ),
    SupportedFramework(
        "tensorflow",
        package="tensorflow",
        image="openedt/runner-tensorflow:latest",
        environ={
            "KERAS_BACKEND": "tensorflow",  # a keras.json in the user's home may name another backend
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_ENABLE_ONEDNN_OPTS": "1",  # the fast kernels; the default depends on the processor
            KERAS2_VARIABLE: "0",
        },
    ),
)
FRAMEWORKS: Mapping[str, SupportedFramework] = {each.name: each for each in _ALL}

READ_AT_IMPORT = (
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "MALLOC_", "LD_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "ATEN_", "TF_", "KERAS_", "XLA_", "CUDA_", "NCCL_", "GLOO_"),
)
"""Prefixes of variables that Python, a framework or its libraries read once, when they are loaded. A job that sets such
a variable cannot use a process that has loaded them already."""
_OF_ALL = {
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "x",
    # torch then asks NVML whether there is a GPU. Else it asks CUDA, and a process that has done that cannot fork
    # engines.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}

NO_FRAMEWORK = "none"
"""What a gang's supervisor is started with in place of a framework's name. It imports none, because the processes of a
gang run programs of their own."""
_OF_A_GANG = {
    "PYTHONUNBUFFERED": "x"
}  # logs come line by line; programs of the user's choose everything else themselves


def supervisor_environ(framework: str, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables with which every supervisor of a framework is started, so that its children compute the
    same on every node.

    Some variables keep the supervisor single-threaded, so that it can fork. A fixed hash seed gives sets the same
    order everywhere. Others are read by the framework when it is imported.

    Args:
        framework: its name. An unknown framework gets only the variables that all frameworks have in common. With
            NO_FRAMEWORK the supervisor's children are not forks that compute, so they get none that change a program.
        chosen: variables that a person has set. They replace those that the framework reads when it is imported.
    """
    if framework == NO_FRAMEWORK:
        return dict(_OF_A_GANG)
    read = FRAMEWORKS[framework].environ if framework in FRAMEWORKS else {}
    return {name: (chosen or {}).get(name, value) for name, value in read.items()} | _OF_ALL


def must_be_cold(wanted: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a job sets a variable that is read when a framework is loaded, so that it cannot use a warm process.

    Args:
        wanted: the variables that the job sets.
        given: the variables of the warm process.
    """
    return any(name.startswith(READ_AT_IMPORT) and given.get(name) != value for name, value in wanted.items())


def keras2() -> bool:
    """Whether TF_USE_LEGACY_KERAS asks for Keras 2, by the same rule as in TensorFlow."""
    return os.environ.get(KERAS2_VARIABLE) in KERAS2_VALUES
