"""What can be told by which name, in both directions. Room: runners."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict, "counter": Counter, "default": defaultdict}
MISSING: Any = object()
_LIBRARIES = (
    *(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).resolve().parents[2]),  # ours, wherever it is installed
)
_BASES = ("callbacks", "keras.src.callbacks.callback", "tf_keras.src.callbacks")
"""Modules whose classes are bases of what a user writes, and have nothing that an attribute does not show."""


def tells_itself(value: Any) -> bool:
    """Whether it is asked for its state rather than looked at."""
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def is_of_the_script(kind: type) -> bool:
    """Whether the class stands in the user's own code: in no library, and not in the interpreter."""
    if kind.__module__ in _BASES:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and not file.startswith(_LIBRARIES))


def named_by(value: Any) -> list[str] | None:
    """[module, qualified name] of what can be found by it in any process that has run the same script."""
    named = [getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or ""]
    if isinstance(value, np.ufunc):
        named = ["numpy", value.__name__]
    return named if all(named) and look_up(*named) is value else None


def look_up(module: str, qualified: str) -> Any:
    """``MISSING`` where there is nothing of that name, or its module has not been imported."""
    found: Any = sys.modules.get(module, MISSING)
    for part in qualified.split("."):
        found = getattr(found, part, MISSING)
    return found


def name_of(kind: type) -> str:
    """For people, and for comparison."""
    return (
        kind.__qualname__ if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}.{kind.__qualname__}"
    )
