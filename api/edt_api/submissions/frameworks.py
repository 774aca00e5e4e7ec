"""The frameworks that a job may name, their prebuilt models, and the names of jobs for people. Pure.

Which frameworks there are is the catalogue's: ``edt_scheduler.model.catalogue`` has the built-in entries, and
``edt_scheduler.operations.frameworks`` those that an administrator has added. WMLA has more names than the catalogue. A
job that names one of those is refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from edt_api.errors import ArgumentsInvalid
from edt_scheduler.model.catalogue import Framework, built_in

Find = Callable[[str], Framework | None]
"""Returns the entry of this name; None: there is none."""
find_built_in: Find = built_in().get

_ALSO_CALLED = {
    "edtTensorFlow": "edtTensorflow",  # its owner's spelling
    "edtKeras": "edtTensorflow",  # under these names, WMLA 1.2 ran Keras and certain releases
    "PyTorch041": "PyTorch",
    "keras": "tensorflow",
    "tensorflow1100": "tensorflow",
    "disttensorflow_v1": "disttensorflow",
}
"""Other names of built-in frameworks. The job gets the framework's main name."""
_OF_WMLA = frozenset({"Caffe", "ddlTensorFlow", "XGboost"})
NAMES_GIVEN_BY_NOBODY = frozenset(each.app_name for each in built_in().values())
RUN_NOW = ", ".join(built_in())
"""The names of the built-in frameworks, for sentences."""


@dataclass(frozen=True)
class Prebuilt:
    """A model that a job can train without an upload."""

    script: str
    """Name of a file in the folder PREBUILT_FOLDER."""
    arguments: tuple[str, ...] = ()
    """Words that come before the user's own."""


_PICTURES = {name: Prebuilt("pictures.py", ("--model", name)) for name in ("AlexNet", "VGG16", "ResNet18")}
PREBUILT: Mapping[str, Mapping[str, Prebuilt]] = {
    "edtPyTorch": {"MNIST": Prebuilt("mnist.py")},
    "PyTorch": _PICTURES,
    "distPyTorch": _PICTURES,
}
"""The prebuilt models of each framework, by WMLA's names."""
PREBUILT_FOLDER = "prebuilt"
"""A folder of this package. Its scripts are the code of jobs and never imported here."""

_NO_NAMES = frozenset({"main", "train", "__main__"})
"""Names of scripts that do not show what the script trains."""
_SHOWN_CHARACTERS = 64


def shown_name(framework: str, app_name: str, script: str, folder: str, command: str = "") -> str:
    """Return the name of a job that people see.

    WMLA's clients get the framework's name if the user gave no name to the job. People then see the name of the script.
    If the script has a common name such as ``main.py``, they see the name of the folder that was sent. Of a job that
    runs a command in place of a script, they see the command.

    Args:
        framework: the name of the framework in the catalogue.
        app_name: name that WMLA's clients get.
        script: path of the main script; empty: the job has none.
        folder: name of the folder that was sent; empty if there was none.
        command: the command of ``--user-cmd``; empty: there is none.
    """
    known = built_in().get(_ALSO_CALLED.get(framework, framework))
    if app_name != (known.app_name if known is not None else framework):
        return app_name
    if command:
        return command if len(command) <= _SHOWN_CHARACTERS else command[: _SHOWN_CHARACTERS - 1] + "…"
    stem = PurePosixPath(script).stem
    return folder if folder and stem in _NO_NAMES else stem or app_name


def framework_of(name: str, find: Find) -> Framework:
    """Return the entry of this name.

    Raises:
        ArgumentsInvalid: the catalogue has no entry of this name.
    """
    found = find(name) or built_in().get(_ALSO_CALLED.get(name, ""))
    if found is not None:
        return found
    known = f"{name}, a framework of WMLA" if name in _OF_WMLA else f"{name[:64]!r}, a framework nobody knows"
    takes = f"what this release runs: {RUN_NOW}, and what an admin has added (`edt frameworks` lists all)"
    raise ArgumentsInvalid("--exec-start", known, takes)


def prebuilt_model(framework: str, model: str) -> Prebuilt:
    """Return a prebuilt model.

    Raises:
        ArgumentsInvalid: the framework has no prebuilt model of this name.
    """
    models = PREBUILT.get(framework, {})
    if model not in models:
        takes = " or ".join(models) if models else f"no name with {framework}, which has no prebuilt models"
        raise ArgumentsInvalid("--pbmodel-name", repr(model[:64]), takes)
    return models[model]
