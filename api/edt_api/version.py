"""The version of the server."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the version of the installed package; ``unknown`` if it runs from the sources."""
    try:
        return metadata.version("openedt")
    except metadata.PackageNotFoundError:
        return "unknown"
