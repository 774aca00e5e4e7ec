"""FabricModel under the name that WMLA 4.x notebooks use.

In a job and in a script this is ``fabric_model.FabricModel`` itself. In a notebook, where no script runs, it is
``pyedt.notebook.model.FabricModel``, which sends the training to the platform, or without one trains on this machine.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import fabric_model
from edt_runner import context

if TYPE_CHECKING:
    from fabric_model import FabricModel

__all__ = ["FabricModel"]


def __getattr__(name: str) -> Any:
    """Choose the class when it is imported: a kernel may also run scripts (``%run main.py``)."""
    if name != "FabricModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if runs_a_script():
        return fabric_model.FabricModel
    from pyedt.notebook.model import FabricModel

    return FabricModel


def runs_a_script() -> bool:
    """Whether this process is a driver or an engine, or runs a script file, which engines could run too."""
    if context.current() is not None:
        return True
    file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    return file is not None and file != "<stdin>"
