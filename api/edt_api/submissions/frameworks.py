"""Which frameworks a job may name, and how they are described to clients. Pure.

WMLA's catalogue has more names than this release runs; naming one of those is answered by a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from edt_api.errors import ArgumentsInvalid
from edt_contract.frameworks import FRAMEWORKS, SupportedFramework

RUNNABLE: Mapping[str, SupportedFramework] = {each.wmla_name: each for each in FRAMEWORKS.values()}
"""By WMLA's names, matched by case."""
_ALSO_CALLED = {"edtTensorFlow": "edtTensorflow", "edtKeras": "edtTensorflow"}
"""How TensorFlow writes itself, and the name under which WMLA 1.2 ran Keras; such a job bears the other name."""
_OF_WMLA = frozenset({
    "PyTorch", "distPyTorch", "PyTorch041", "tensorflow", "disttensorflow", "disttensorflow_v1",
    "tensorflow1100", "ddlTensorFlow", "keras", "Caffe", "XGboost",
})  # fmt: skip
NAMES_GIVEN_BY_NOBODY = frozenset(each.app_name for each in FRAMEWORKS.values())
RUN_NOW = " or ".join(RUNNABLE)
"""For sentences."""


_NO_NAMES = frozenset({"main", "train", "__main__"})
"""Scripts called so say nothing of what they train."""


def shown_name(framework: str, app_name: str, script: str, folder: str) -> str:
    """A job's name for people. WMLA's clients get its framework's where its user gave none; people are shown that
    of the script, or of the folder that was sent (``folder``) where the script is one of many ``main.py``."""
    known = RUNNABLE.get(_ALSO_CALLED.get(framework, framework))
    if known is None or app_name != known.app_name:
        return app_name
    stem = PurePosixPath(script).stem
    return folder if folder and stem in _NO_NAMES else stem or app_name


def runnable(name: str) -> SupportedFramework:
    """The framework of this name. Raises ArgumentsInvalid for one that is not run."""
    found = RUNNABLE.get(_ALSO_CALLED.get(name, name))
    if found is not None:
        return found
    known = f"{name}, a framework of WMLA" if name in _OF_WMLA else f"{name[:64]!r}, a framework nobody knows"
    raise ArgumentsInvalid("--exec-start", known, f"what this release runs: {RUN_NOW}")
