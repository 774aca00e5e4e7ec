"""Which lane a test runs in, and what ids it has there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.account import unlike
from suite.lanes import FOLDERS, Lane, lane_of

TESTS = Path(__file__).parents[1]


def test_the_folder_decides_and_a_marker_wins() -> None:
    assert lane_of("tests/elastic/test_head_nodes.py") is Lane.PROCESSES
    assert lane_of("tests/api/test_lists.py") is Lane.UNITS
    assert lane_of("tests/elastic/test_head_nodes.py", "units") is Lane.UNITS


def test_every_folder_of_tests_has_a_lane() -> None:
    assert {path.parent.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} == set(FOLDERS)


def test_a_new_folder_and_an_unknown_lane_are_errors() -> None:
    with pytest.raises(ValueError, match="names no lane for tests/queues: add it to FOLDERS"):
        lane_of("tests/queues/test_a.py")
    with pytest.raises(ValueError, match="'fast' is not a valid Lane"):
        lane_of("tests/api/test_a.py", "fast")


def test_ids_that_differ_between_two_processes_are_found() -> None:
    assert unlike(["a[1]", "b"], ["b", "a[2]"]) == ["a[1]", "a[2]"]
    assert unlike(["a", "b"], ["b", "a"]) == []


@pytest.mark.extended  # each run compares its two lanes; here the processes are unlike for certain
@pytest.mark.timeout(300)
def test_ids_depend_on_no_clock_no_address_and_no_order_of_a_set(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        account = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--account", account],
            cwd=TESTS.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.DEVNULL,
            timeout=150,
            check=True,
        )
        found.append(json.loads(account.read_text().splitlines()[0])["all"])
    assert len(found[0]) > 2000 and unlike(*found) == []
