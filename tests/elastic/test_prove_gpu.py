"""``make prove-gpu`` without a GPU: the page is whole, and nothing on it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prove_gpu.py"
OVER = ("W = 2 over gloo", "W = 2 over collectives over gloo")
HAPPENS = ("join, 1 → 2", "leave, 2 → 1", "SIGKILL of one of 2, and return", "all stopped, restarted from a checkpoint")


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_page_is_whole_without_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "page.json"
    words = [sys.executable, str(SCRIPT), "--device", "cpu", "--budget", "500", "--json", str(file)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(file.read_text())
    equal = [row["case"].partition(": ")[2].strip() for row in told["rows"] if row["unit"] == "equal"]
    for title in ("W = 1", *OVER, *HAPPENS):
        assert equal.count(title) == 2, equal  # for both networks
    units = {row["unit"] for row in told["rows"] if row["case"].startswith(("pauses", "speed"))}
    assert units == {"ms", "steps", "s", "x"}
    assert sum("nothing is copied" in note for note in told["absent"]) == 2
    assert told["targets"] == []  # they are for GPUs
