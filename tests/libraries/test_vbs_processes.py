"""variable_batch_size in 1, 2 and 3 real processes over gloo, against NumPy loops."""

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
import torch

from support import regression
from support.vbs_rank import ADA, SAVED_AT, Training, everything

TESTS = Path(__file__).resolve().parents[1]
SIZES = (1, 2, 3)
pytestmark = pytest.mark.timeout(240)  # the first of them waits for six processes, on however few cores there are
CLOSE = {"rtol": 0.0, "atol": 1e-12}

Seen = dict[int, list[dict[str, Any]]]
"""By number of processes: what each rank saw."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vbs")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    torch.set_num_threads(1)
    found: Seen = {1: [json.loads(json.dumps(everything(0, 1, folder)))]}
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "runners")])
    environ = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    group = subprocess.Popen(
        [sys.executable, "-m", "support.vbs_rank", str(folder)],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        errors = group.communicate(timeout=200)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group.pid, signal.SIGKILL)
    assert group.returncode == 0, errors
    for size in SIZES[1:]:
        found[size] = [json.loads((folder / f"saw-{size}-{rank}.json").read_text()) for rank in range(size)]
    return found


def called(pattern: str) -> list[bool]:
    return [flag == "T" for flag in pattern.split()]


def test_c2_04_two_processes_share_the_first_epoch(seen: Seen) -> None:
    assert [rank["returned"][0] for rank in seen[2]] == [called("T T F T F T T")] * 2
    assert [rank["assignments"][0] for rank in seen[2]] == [
        [[0], [2], [4, 6], [8, 10], [12]],
        [[1], [3], [5, 7], [9, 11], [13]],
    ]


def test_c2_05_two_processes_take_different_numbers_of_micro_batches_for_one_update(seen: Seen) -> None:
    assert [rank["returned"][1] for rank in seen[2]] == [called("F T F F T F F F T"), called("T F T F F F T")]
    assert [rank["assignments"][1] for rank in seen[2]] == [
        [[0, 2], [3, 5, 7], [8, 10, 12, 14]],
        [[1], [4, 6], [9, 11, 13, 15]],
    ]


def test_c2_06_a_process_without_a_share_steps_along_and_keeps_the_same_weights(seen: Seen) -> None:
    assert seen[2][1]["assignments"][2][:2] == [[], []]
    assert seen[2][1]["returned"][2] == called("T T T F F T F T")
    assert seen[2][0]["linear"] == seen[2][1]["linear"]
    assert seen[3][1]["assignments"][2][:3] == [[], [], [3]]
    assert seen[3][2]["assignments"][2][:3] == [[], [], []]
    assert seen[3][0]["linear"] == seen[3][1]["linear"] == seen[3][2]["linear"]


@pytest.mark.parametrize("size", SIZES)
def test_c2_10_11_the_linear_rules_weights_are_the_loops_on_any_number_of_processes(seen: Seen, size: int) -> None:
    expected = regression.sgd(lambda batch: batch / regression.REFERENCE)
    assert len(expected) == 18
    for rank in seen[size]:
        np.testing.assert_allclose(rank["linear"], expected, **CLOSE)


@pytest.mark.parametrize("size", SIZES)
def test_c2_15_every_process_has_the_loops_weights(seen: Seen, size: int) -> None:
    momentum = regression.sgd(lambda batch: batch / regression.REFERENCE, momentum=0.9)
    root = regression.sgd(lambda batch: (batch / regression.REFERENCE) ** 0.5)
    for rank in seen[size]:
        np.testing.assert_allclose(rank["momentum"], momentum, **CLOSE)
        np.testing.assert_allclose(rank["root"], root, **CLOSE)
        np.testing.assert_allclose(rank["adam"], seen[1][0]["adam"], **CLOSE)
        assert rank["linear"] == seen[size][0]["linear"]
        assert rank["adam"] == seen[size][0]["adam"]


@pytest.mark.parametrize("size", SIZES)
def test_c2_17_gains_of_the_originals_averages_do_not_depend_on_the_number_of_processes(seen: Seen, size: int) -> None:
    expected = regression.AdaScale(theirs=True).run(epochs_of(ADA))
    for rank in seen[size]:
        np.testing.assert_allclose(rank["adascale_averages"]["gains"], expected.gains, **CLOSE)
        np.testing.assert_allclose(rank["adascale_averages"]["weights"], expected.weights, **CLOSE)


@pytest.mark.parametrize("size", SIZES)
def test_c2_18_debiased_gains_weights_and_iterations_are_the_loops(seen: Seen, size: int) -> None:
    expected = regression.AdaScale().run(epochs_of(ADA))
    assert len(expected.gains) == 17
    for rank in seen[size]:
        np.testing.assert_allclose(rank["adascale"]["gains"], expected.gains, **CLOSE)
        np.testing.assert_allclose(rank["adascale"]["weights"], expected.weights, **CLOSE)
        assert rank["adascale"]["iterations"] == pytest.approx(sum(expected.gains), abs=1e-11)


@pytest.mark.parametrize("size", SIZES)
def test_c2_30_a_state_of_one_process_goes_on_in_any_number(seen: Seen, size: int) -> None:
    last = regression.sgd(lambda batch: batch / regression.REFERENCE, momentum=0.9)[-1]
    for rank in seen[size]:
        assert len(rank["resumed"]) == len(SAVED_AT)
        for weights in rank["resumed"].values():
            np.testing.assert_allclose(weights, last, **CLOSE)


@pytest.mark.parametrize("size", SIZES[1:])
def test_c2_30_a_state_of_several_processes_goes_on_in_one(seen: Seen, folder: Path, size: int) -> None:
    last = regression.sgd(lambda batch: batch / regression.REFERENCE, momentum=0.9)[-1]
    states = sorted(folder.glob(f"state-{size}-*"))
    assert len(states) >= 3 and size in seen
    for state in states:
        resumed = Training(0, 1, inner_options={"momentum": 0.9}).load(state.read_bytes()).finish()
        np.testing.assert_allclose(resumed.seen[-1], last, **CLOSE)


def test_the_noise_scale_is_the_same_however_many_processes_measure_it(seen: Seen) -> None:
    assert 0 < seen[1][0]["noise_scale"] < 1000
    for size in SIZES:
        for rank in seen[size]:
            assert rank["noise_scale"] == pytest.approx(seen[1][0]["noise_scale"], rel=1e-12)


def test_a_pass_without_a_share_leaves_batch_statistics_and_random_numbers_alone(seen: Seen) -> None:
    assert seen[1][0]["batch_statistics"]["idle_and_kept"] == [[False, False]] * 4
    assert seen[2][1]["batch_statistics"]["idle_and_kept"] == [[False, False], [True, True], [True, True]]
    assert seen[3][2]["batch_statistics"]["idle_and_kept"] == [[True, True]] * 3
    for size in SIZES:
        assert len({str(rank["batch_statistics"]["weight"]) for rank in seen[size]}) == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_weight_that_only_one_process_uses_is_updated_everywhere_and_one_that_none_uses_nowhere(
    seen: Seen, size: int
) -> None:
    for rank in seen[size]:
        assert rank["some_unused"]["nowhere"] == [1.0, 1.0]
        np.testing.assert_allclose(rank["some_unused"]["here"], [1 - 0.5 * (1 / 3 + 0.1)] * 2, **CLOSE)
        np.testing.assert_allclose(rank["some_unused"]["used"], [1 - 0.1 * (1 + 0.1)] * 2, **CLOSE)


@pytest.mark.parametrize("size", SIZES[1:])
def test_processes_that_are_not_at_the_same_update_say_so(seen: Seen, size: int) -> None:
    for rank in seen[size]:
        assert "update 0: the processes brought" in rank["astray"]


@pytest.mark.parametrize("size", SIZES[1:])
def test_processes_that_begin_with_other_weights_say_so(seen: Seen, size: int) -> None:
    for rank in seen[size]:
        assert rank["unlike"].startswith("the processes begin with different weights")


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_model_in_distributed_data_parallel_is_an_error_before_anybody_waits(seen: Seen, size: int) -> None:
    for rank in seen[size]:
        assert rank["wrapped"].startswith("the parameters are in a DistributedDataParallel")


def epochs_of(trace: list[int]) -> list[list[int]]:
    """By hand: as many entries as 64 samples allow."""
    epochs: list[list[int]] = [[]]
    for batch in trace:
        if sum(epochs[-1]) + batch > 64:
            epochs.append([])
        epochs[-1].append(batch)
    return epochs
