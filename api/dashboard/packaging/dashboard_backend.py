"""hatchling, and Node from PyPI where a wheel or a source distribution needs it and the machine has none.

A build hook cannot tell an editable install from a wheel when it is asked what it requires; a backend can. So an
editable install asks for nothing that it could not do without.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling import build as hatchling
from hatchling.build import build_editable, build_sdist, build_wheel, get_requires_for_build_editable

from dashboard_build import NODE_FROM_PYPI, SKIP, Dashboard, find_node

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*hatchling.get_requires_for_build_sdist(config_settings), *_node()]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*hatchling.get_requires_for_build_wheel(config_settings), *_node()]


def _node() -> list[str]:
    needed = os.environ.get(SKIP) != "1" and not Dashboard().is_built() and find_node() is None
    return [NODE_FROM_PYPI] if needed else []
