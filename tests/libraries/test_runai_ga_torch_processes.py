"""``runai.ga.torch.optim`` under DistributedDataParallel, in two real processes over gloo, against a NumPy loop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.accumulation_rank import RATE, SIZE, STEPS, UPDATES, data

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """By rank."""
    folder = tmp_path_factory.mktemp("accumulation")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "runners")])
    environ = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    group = subprocess.Popen(
        [sys.executable, "-m", "support.accumulation_rank", str(folder)],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        errors = group.communicate(timeout=90)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group.pid, signal.SIGKILL)
    assert group.returncode == 0, errors
    return [json.loads((folder / f"weights-{rank}.json").read_text()) for rank in range(SIZE)]


def trained() -> np.ndarray:
    inputs, targets = data()
    weight, velocity = np.zeros(5), np.zeros(5)
    batch = STEPS * SIZE
    for start in range(0, UPDATES * batch, batch):
        x, y = inputs[start : start + batch], targets[start : start + batch]
        velocity = 0.9 * velocity + 2 * x.T @ (x @ weight - y) / batch
        weight = weight - RATE * velocity
    return weight


@pytest.mark.parametrize("loop", ["sync", "no_sync"])
def test_micro_batches_within_no_sync_reach_every_process(weights: list[dict[str, Any]], loop: str) -> None:
    assert weights[0][loop] == weights[1][loop]
    np.testing.assert_allclose(weights[0][loop], trained(), rtol=0, atol=1e-12)


def test_a_parameter_that_one_process_has_not_used_counts_there_as_zero(weights: list[dict[str, Any]]) -> None:
    inputs, targets = data()
    x, y = inputs[: STEPS * SIZE], targets[: STEPS * SIZE]
    slopes = -2 * x * y[:, None]  # of each sample, where all weights are 0
    expected = {"both.weight": slopes.sum(0) / (STEPS * SIZE), "first.weight": slopes[::SIZE].sum(0) / (STEPS * SIZE)}
    for found in (weights[0]["uneven"], weights[1]["uneven"]):
        assert found.pop("nobody.weight") is None
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-12)
