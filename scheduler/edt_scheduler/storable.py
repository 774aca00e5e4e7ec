"""What others say, made fit for every database. Room: scheduler. Pure.

PostgreSQL takes no NUL in text and no NaN in JSON, neither takes a number of more than 64 bits or half of a
surrogate pair. One odd report must not stand in the way of all that follow it.
"""

from __future__ import annotations

import math
from typing import Any

LARGEST = 2**63 - 1


def storable(value: Any) -> Any:
    """JSON data with what cannot be stored replaced: odd characters by U+FFFD, odd numbers by None."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -LARGEST <= value <= LARGEST else None
    if isinstance(value, dict):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return storable(str(value))
