"""``fit`` of a Run:AI model on several devices and in a job: row 28 of what must pass.

The data are drawn by the script without a seed of its own, so that driver and engines must have been seeded alike.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.numpy_net import NumpyNet
from support.nursery import RUNNERS, TESTS
from support.training import Elastic, script

pytest.importorskip("keras")
MAIN = script("runai_elastic", "tensorflow")


def weights(found: Any, of: str) -> list[Any]:
    return [found[f"{of}{index}"] for index in range(4)]


def assert_close(one: list[Any], other: list[Any]) -> None:
    for each, expected in zip(one, other, strict=True):
        np.testing.assert_allclose(each, expected, atol=1e-6)


def by_hand(found: Any) -> NumpyNet:
    return NumpyNet(weights(found, "first"), rate=0.1, momentum=0.5).fit(found["inputs"], found["targets"], 20, 2)


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_c1_28_on_two_engines_of_this_machine_it_trains_as_on_one_device_and_as_by_hand(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{TESTS}:{RUNNERS}", "EDT_DEVICES": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
    environ.pop("EDT_CPU_SLOTS", None)
    done = subprocess.run(
        [sys.executable, str(MAIN)], cwd=tmp_path, env=environ, text=True, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    assert (int(found["steps"]), int(found["batch_size"])) == (2, 5)
    expected = by_hand(found)
    assert_close(weights(found, "alone"), expected.weights)
    assert_close(weights(found, "engines"), expected.weights)
    for name in ("loss", "mae", "val_loss", "val_mae"):
        np.testing.assert_allclose(found[f"engines.{name}"], found[f"alone.{name}"], rtol=1e-5)
    np.testing.assert_allclose(found["engines.loss"], expected.losses, rtol=1e-5)
    assert done.stdout.startswith("fit(): called a second time on several devices")


@pytest.mark.parametrize("framework", ["tensorflow"], indirect=True)
def test_c1_28_in_a_job_it_trains_alike_on_one_engine_and_on_two(
    attempt: Callable[..., Elastic], tmp_path: Path
) -> None:
    plans = {"one": [1], "two": [1, 2]}
    digests = []
    with contextlib.ExitStack() as stack:
        trainings = {name: stack.enter_context(attempt(MAIN, folder=name, max_engines=3)) for name in plans}
        for name, training in trainings.items():
            training.hold(plans[name])
        for name, training in trainings.items():
            end = training.finish()
            assert (end["kind"], end["message"]) == ("finished", "")
            digests.append(end["digest"])
            seen = set((tmp_path / name / "seen").read_text().splitlines())
            # "1 0": the second came in the epoch's last step, of which it computed nothing
            assert seen <= ({"1 3"} if name == "one" else {"1 3", "2 2", "2 1", "1 0"})
            found = np.load(tmp_path / name / "found.npz")
            # Each of up to three engines holds 7 at most: 20 in three micro-batches.
            assert (int(found["steps"]), int(found["batch_size"])) == (1, 7)
            assert_close(weights(found, "engines"), by_hand(found).weights)
            assert "Train" in (training.log_dir / "stdout").read_text()
    assert digests[0] == digests[1] is not None
