"""TensorFlow over processes: a supervisor that has it can fork, and what its children compute has the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edt_contract.frameworks import supervisor_environ

ROOT = Path(__file__).parents[2]


@pytest.mark.tensorflow
@pytest.mark.timeout(240)
def test_a_warm_supervisor_has_one_thread_and_its_children_the_same_bits() -> None:
    """Two threads an op, as on a node with more cores than slots."""
    environ = os.environ | supervisor_environ("tensorflow") | {"PYTHONPATH": f"{ROOT}/tests:{ROOT}/runners"}
    done = subprocess.run(
        [sys.executable, "-m", "support.tensorflow_zygote"],
        env=environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    seen = json.loads(done.stdout)
    assert seen["threads"] == 1
    assert len(seen["digests"]) == 2
    assert len(set(seen["digests"])) == 1


@pytest.mark.parametrize(("own", "seen"), [(None, "true"), ("false", "false")])
def test_a_plain_driver_leaves_the_gpu_to_the_engines_unless_its_user_says_otherwise(
    own: str | None, seen: str
) -> None:
    """As TensorFlow's runtime reads it when it meets a GPU."""
    environ = {name: value for name, value in os.environ.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    environ |= {"PYTHONPATH": f"{ROOT}/runners"} | ({} if own is None else {"TF_FORCE_GPU_ALLOW_GROWTH": own})
    line = (
        "import ctypes, fabric_model; getenv = ctypes.CDLL(None).getenv; getenv.restype = ctypes.c_char_p; "
        "print(getenv(b'TF_FORCE_GPU_ALLOW_GROWTH').decode())"
    )
    done = subprocess.run([sys.executable, "-c", line], env=environ, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() == seen
