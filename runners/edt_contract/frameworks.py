"""The frameworks that this release runs: one table, which the API, the agent and the runner read.

A third one needs an entry in ``FRAMEWORKS``, the package of ``edt_runner.frameworks`` that bears its name, and what
docs/where.md names besides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

KERAS2_VARIABLE = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own: its Keras is Keras 2."""
KERAS2_VALUES = frozenset({"1", "true", "True"})
"""All that TensorFlow takes for yes."""


@dataclass(frozen=True)
class SupportedFramework:
    """One framework, as everybody must know it who does not import it."""

    name: str
    """As specs and settings write it."""
    wmla_name: str
    """WMLA's name, by which a job asks for it."""
    app_name: str
    """What a job is called whose user does not say."""
    description: str
    package: str
    """The Python package that users import; openedt's extra has the same name."""
    image: str
    """The container image of its jobs, where neither the node nor the job names another one."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that it reads when it is imported, and what its supervisors start with."""


_ALL = (
    SupportedFramework(
        "pytorch",
        wmla_name="edtPyTorch",
        app_name="ElasticPyTorchTrain",
        description="Elastic distributed training with PyTorch",
        package="torch",
        image="openedt/runner-torch:latest",
    ),
    SupportedFramework(
        "tensorflow",
        wmla_name="edtTensorflow",
        app_name="ElasticTensorflow2xTrain",
        description="Elastic distributed training with TensorFlow",
        package="tensorflow",
        image="openedt/runner-tensorflow:latest",
        environ={
            "KERAS_BACKEND": "tensorflow",  # a keras.json in somebody's home may say another
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_ENABLE_ONEDNN_OPTS": "1",  # the quick kernels; which ones compute is not for the processor to choose
            KERAS2_VARIABLE: "0",
        },
    ),
)
FRAMEWORKS: Mapping[str, SupportedFramework] = {each.name: each for each in _ALL}

READ_AT_IMPORT = (
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "MALLOC_", "LD_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "ATEN_", "TF_", "KERAS_", "XLA_", "CUDA_", "NCCL_", "GLOO_"),
)
"""Prefixes of variables that Python, a framework or its libraries read once, when they are loaded: a job that sets one
cannot use a process that has loaded them already."""
_OF_ALL = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "x"}


def supervisor_environ(framework: str, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that every supervisor of a framework is started with, so that its children compute the same on every
    node: what keeps it single-threaded, so that it can fork; an equal hash seed, so that sets have equal orders; and
    what the framework reads when it is imported.

    Args:
        framework: its name; one that is not known gets what all get.
        chosen: variables that a person has set; they replace those that the framework reads when it is imported.
    """
    read = FRAMEWORKS[framework].environ if framework in FRAMEWORKS else {}
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
