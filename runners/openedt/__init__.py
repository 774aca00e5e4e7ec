"""Elastic training for PyTorch scripts: ``import openedt``.

    for inputs, targets in openedt.loader(dataset, model, optimizer, epochs=3, batch_size=96, device_batch_size=32):
        ...                                          # the body of a plain PyTorch loop

The loop goes on while engines join, leave or crash, and its result has the same bits on any number of them; ``loader``
describes it. ``FabricModel``, ``Callback`` and ``LoggerCallback`` are those of ``fabric_model`` and ``callbacks``, for
a training whose loop the platform runs.

Every process of a job must see the same data. In a process without a platform, the import therefore seeds Python and
NumPy with EDT_SEED, and torch as soon as the script has imported it. It imports no framework itself; its names are
imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from edt_runner.launch.seeding import seed_at_import

if TYPE_CHECKING:
    from fabric_model import FabricModel
    from openedt.own_loop import loader
    from pyedt.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "FabricModel", "LoggerCallback", "loader"]

_PLACES = {
    "Callback": "pyedt.callbacks",
    "FabricModel": "fabric_model",
    "LoggerCallback": "pyedt.callbacks",
    "loader": "openedt.own_loop",
}

seed_at_import(__name__)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'openedt' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
