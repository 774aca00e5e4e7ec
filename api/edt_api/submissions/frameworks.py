"""The frameworks that a job may name, and their names for clients. Pure.

WMLA's catalogue has more names than this release runs. A job that names one of those is refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from edt_api.errors import ArgumentsInvalid
from edt_contract.frameworks import FRAMEWORKS, SupportedFramework

RUNNABLE: Mapping[str, SupportedFramework] = {each.wmla_name: each for each in FRAMEWORKS.values()}
"""The supported frameworks by WMLA's names. The case of a name matters."""
_ALSO_CALLED = {"edtTensorFlow": "edtTensorflow", "edtKeras": "edtTensorflow"}
"""Other names of a framework: TensorFlow's own spelling, and the name under which WMLA 1.2 ran Keras. The job gets the
framework's main name.
"""
_OF_WMLA = frozenset({
    "PyTorch", "distPyTorch", "PyTorch041", "tensorflow", "disttensorflow", "disttensorflow_v1",
    "tensorflow1100", "ddlTensorFlow", "keras", "Caffe", "XGboost",
})  # fmt: skip
NAMES_GIVEN_BY_NOBODY = frozenset(each.app_name for each in FRAMEWORKS.values())
RUN_NOW = " or ".join(RUNNABLE)
"""The names of the supported frameworks, for sentences."""

PREBUILT: Mapping[str, Mapping[str, str]] = {"edtPyTorch": {"MNIST": "mnist.py"}}
"""The prebuilt models of each framework, by WMLA's names, and the script of each in the folder PREBUILT_FOLDER."""
PREBUILT_FOLDER = "prebuilt"
"""A folder of this package. Its scripts are the code of jobs and never imported here."""

_NO_NAMES = frozenset({"main", "train", "__main__"})
"""Names of scripts that do not show what the script trains."""


def shown_name(framework: str, app_name: str, script: str, folder: str) -> str:
    """Return the name of a job that people see.

    WMLA's clients get the framework's name if the user gave no name to the job. People then see the name of the script.
    If the script has a common name such as ``main.py``, they see the name of the folder that was sent.

    Args:
        framework: WMLA's name of the framework.
        app_name: name that WMLA's clients get.
        script: path of the main script.
        folder: name of the folder that was sent; empty if there was none.
    """
    known = RUNNABLE.get(_ALSO_CALLED.get(framework, framework))
    if known is None or app_name != known.app_name:
        return app_name
    stem = PurePosixPath(script).stem
    return folder if folder and stem in _NO_NAMES else stem or app_name


def runnable(name: str) -> SupportedFramework:
    """Return the framework of this name.

    Raises:
        ArgumentsInvalid: this release does not run a framework of this name.
    """
    found = RUNNABLE.get(_ALSO_CALLED.get(name, name))
    if found is not None:
        return found
    known = f"{name}, a framework of WMLA" if name in _OF_WMLA else f"{name[:64]!r}, a framework nobody knows"
    raise ArgumentsInvalid("--exec-start", known, f"what this release runs: {RUN_NOW}")


def prebuilt_script(framework: str, model: str) -> str:
    """Return the name of a prebuilt model's script in PREBUILT_FOLDER.

    Raises:
        ArgumentsInvalid: the framework has no prebuilt model of this name.
    """
    models = PREBUILT.get(framework, {})
    if model not in models:
        takes = " or ".join(models) if models else f"no name with {framework}, which has no prebuilt models"
        raise ArgumentsInvalid("--pbmodel-name", repr(model[:64]), takes)
    return models[model]
