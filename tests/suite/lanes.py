"""Which of the two lanes a test runs in. The lanes run side by side, each in one pytest process of its own."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import PurePosixPath


class Lane(enum.StrEnum):
    """What a lane is full of."""

    PROCESSES = "processes"
    """Trainings, whole platforms, containers, browsers: they start processes that keep the cores busy."""
    UNITS = "units"
    """Each part by itself: in the test's own process, or in processes that mostly wait."""


FOLDERS: Mapping[str, Lane] = {
    "agent": Lane.UNITS,  # it starts processes, too, and both cores are busy for 23 % of its time
    "api": Lane.UNITS,
    "browser": Lane.PROCESSES,
    "chaos": Lane.PROCESSES,
    "checker": Lane.UNITS,
    "cli": Lane.UNITS,
    "clusters": Lane.PROCESSES,
    "compose": Lane.PROCESSES,
    "demo": Lane.UNITS,
    "elastic": Lane.PROCESSES,
    "journeys": Lane.PROCESSES,
    "libraries": Lane.UNITS,
    "provisioner": Lane.UNITS,
    "runners": Lane.UNITS,
    "scheduler": Lane.UNITS,
    "suite": Lane.UNITS,
    "wmla": Lane.UNITS,
}
"""The lane of each folder of tests. A test is moved by ``@pytest.mark.lane("units")``."""


def lane_of(file: str, marked: str | None = None) -> Lane:
    """The lane of a test by its file (``tests/elastic/test_head_nodes.py``) and by its marker ``lane``, which wins.

    Raises ValueError for a lane or a folder that is not in the table.
    """
    if marked is not None:
        return Lane(marked)
    folder = PurePosixPath(file).parts[1]
    if folder not in FOLDERS:
        raise ValueError(f"tests/suite/lanes.py names no lane for tests/{folder}: add it to FOLDERS")
    return FOLDERS[folder]
