"""Gradient accumulation for Keras 3.

    optimizer = runai.ga.keras.optimizers.Adam(steps=4, learning_rate=1e-3)

Keras is imported when ``optimizers`` is first used.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("optimizers", "hooks"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
