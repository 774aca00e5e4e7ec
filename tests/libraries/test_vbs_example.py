"""The example trains as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "examples" / "variable_batch_size" / "train.py"


def test_an_epoch_of_the_example_recognises_most_images_and_its_target_is_its_exit_status() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--epochs", "1", "--target-accuracy", "99.9", "--rule", "constant"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "runners"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (21, "")
    *_, last, verdict = done.stdout.splitlines()
    assert last.startswith("epoch 0: 9 updates, noise scale ")
    assert float(last.split()[8]) > 60
    assert verdict.endswith("is below the target of 99.9 %")
