"""Whole scripts, as people have them, on a machine without GPUs. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.nursery import RUNNERS, TESTS

SCRIPTS = TESTS / "support" / "scripts" / "runai"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("elastic_mnist.py", "8 steps of 32 on 1"),
        pytest.param("ga_mnist.py", "128 of 4 Adam", marks=pytest.mark.extended),
    ],
)
def test_c1_27_a_users_script_ends_well_and_recognises_every_image(name: str, line: str, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PYTHONPATH": f"{SCRIPTS / 'stub'}:{RUNNERS}",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), "--epochs", "2", "--test-batch-size", "256"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{line}\naccuracy 512/512\n"
    assert done.stderr == ""
