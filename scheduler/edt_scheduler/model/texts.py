"""JSON that a database returns as text, decoded once for all rows that have the same. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_KEPT = 20_000


@lru_cache(maxsize=_KEPT)
def parsed(text: str | None) -> Any:
    """The value of a JSON text; None: there is none. Callers share the value, so nobody may change it."""
    return None if text is None else json.loads(text)
