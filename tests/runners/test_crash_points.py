"""Crash points: every one is named once in the list, stands where it belongs, and kills only whom it is told to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edt_contract.crash_points import CrashPoint

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / folder for folder in ("api", "scheduler", "runners", "migrations")]

WHERE = {
    "runners/edt_agent/agent.py": {"AGENT_START", "AGENT_STARTED", "AGENT_SEND", "AGENT_FORGET"},
    "runners/edt_agent/launchers/process.py": {"AGENT_SPEC"},
    "runners/edt_agent/launchers/docker/launcher.py": {"AGENT_SPEC"},
    "runners/edt_agent/report_delivery.py": {"AGENT_REPORT", "AGENT_REPORTED"},
    "scheduler/edt_scheduler/decide/loop.py": {"SCHEDULER_PASS"},
    "scheduler/edt_scheduler/decide/reconcile.py": {
        "SCHEDULER_PLAN",
        "SCHEDULER_RAISED",
        "SCHEDULER_WRITE",
        "SCHEDULER_COMMITTED",
    },
    "scheduler/edt_scheduler/notify/notifier.py": {"SCHEDULER_RELAY"},
    "scheduler/edt_scheduler/periodic/sweeping.py": {"SCHEDULER_SWEEP", "SCHEDULER_FENCED"},
    "scheduler/edt_scheduler/home/lost_found.py": {"SCHEDULER_NOTED", "SCHEDULER_SET_ASIDE"},
    "scheduler/edt_scheduler/platform/pairing.py": {"HOME_ID"},
    "scheduler/edt_scheduler/operations/submitting.py": {"API_RESERVED", "API_LAID_OUT"},
    "scheduler/edt_scheduler/operations/agents.py": {"API_REPORTS"},
    "api/edt_api/submissions/uploads.py": {"API_UPLOAD"},
    "api/edt_api/routes/execs.py": {"API_EXTRACTED", "API_SUBMITTED", "API_STOP"},
    "api/edt_api/routes/agents.py": {"API_REPORTED"},
}
"""File to the points that stand in it, once each: what dies there does so where the point's comment says. One that
stands in two files stands in both sides of a port."""
INSIDE = {
    "ENGINE_": "runners/edt_runner/",
    "DRIVER_": "runners/edt_runner/",
    "COORDINATOR_": "runners/edt_runner/",
    "SUPERVISOR_": "runners/edt_runner/supervisor/",
}
"""Points of a training's own processes: below which folder they stand."""


def used() -> dict[str, list[str]]:
    """Point to the files that name it, a file as often as it does."""
    found: dict[str, list[str]] = {}
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            if path.name == "crash_points.py":
                continue
            for name in re.findall(r"CrashPoint\.([A-Z_]+)", path.read_text()):
                found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_every_point_is_listed_here() -> None:
    listed = {name for names in WHERE.values() for name in names}
    others = [point.name for point in CrashPoint if point.name.startswith(tuple(INSIDE))]
    assert sorted([*listed, *others]) == sorted(point.name for point in CrashPoint)
    assert len({point.value for point in CrashPoint}) == len(CrashPoint)


@pytest.mark.parametrize("name", sorted({name for names in WHERE.values() for name in names}))
def test_a_point_of_the_platform_stands_where_it_belongs_and_nowhere_else(name: str) -> None:
    assert sorted(used().get(name, [])) == sorted(path for path, names in WHERE.items() if name in names)


@pytest.mark.parametrize("prefix", INSIDE)
def test_the_points_of_a_training_all_stand_in_its_own_code(prefix: str) -> None:
    named = used()
    for point in CrashPoint:
        if point.name.startswith(prefix):
            assert named.get(point.name), point.name
            assert all(path.startswith(INSIDE[prefix]) for path in named[point.name]), point.name


HERE = """
from edt_contract.crash_points import CrashPoint, crash_point
for number in range(4):
    print(number, flush=True)
    crash_point(CrashPoint.AGENT_START, who="a")
    crash_point(CrashPoint.ENGINE_APPLIED, at=10 * number, who="7")
"""


@pytest.mark.parametrize(
    ("places", "seen"),
    [
        ("", 4),
        ("agent.send", 4),
        ("agent.start", 1),
        ("agent.start@3", 3),
        ("agent.start#b", 4),
        ("agent.start@2#a", 2),
        ("engine.applied@20", 3),
        ("engine.applied@1", 4),
        ("agent.send,engine.applied@10#7", 2),
    ],
)
def test_it_kills_where_it_is_told_to_and_only_there(places: str, seen: int) -> None:
    done = _run(places)
    assert len(done.stdout.split()) == seen
    assert done.returncode == (-9 if seen < 4 else 0)


def test_with_a_folder_each_entry_kills_once(tmp_path: Path) -> None:
    places = "agent.start@2,engine.applied@0"
    lived = [_run(places, EDT_CRASH_DIR=str(tmp_path)).returncode for _ in range(3)]
    assert lived == [-9, -9, 0]
    assert {path.name for path in tmp_path.iterdir()} == set(places.split(","))


def _run(places: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "runners"), "EDT_CRASH": places, **more}
    return subprocess.run(
        [sys.executable, "-c", HERE], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
