"""The norm of a vector: exact enough for every size of numbers, and the same with any number of threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from edt_runner.frameworks import flat
from edt_runner.frameworks.flat import squared_norm

RUNNERS = Path(__file__).resolve().parents[2] / "runners"


def numbers(count: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (made * scale).to(dtype)


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 1_100_000])
def test_it_is_the_sum_of_all_squares(count: int) -> None:
    vector = numbers(count)
    assert squared_norm(vector) == pytest.approx(math.fsum((vector.double() ** 2).tolist()), rel=2e-7)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e25, torch.float32), (1e-30, torch.float32), (1e100, torch.float64), (1e-3, torch.float16)],
)
def test_numbers_whose_squares_do_not_fit_their_type_count(scale: float, dtype: torch.dtype) -> None:
    vector = numbers(10_000, scale, dtype)
    vector[:3000] = 0
    assert squared_norm(vector) == pytest.approx(math.fsum((vector.double() ** 2).tolist()), rel=1e-12)


def test_a_number_that_is_not_finite_shows() -> None:
    vector = numbers(10_000)
    vector[5000] = math.inf
    assert squared_norm(vector) == math.inf
    vector[9999] = math.nan
    assert math.isnan(squared_norm(vector))


@pytest.mark.extended
def test_its_bits_do_not_depend_on_the_number_of_threads() -> None:
    program = (
        "import torch; from edt_runner.frameworks.flat import squared_norm; "
        "print(repr(squared_norm(torch.randn(1_000_003, generator=torch.Generator().manual_seed(1)))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(RUNNERS), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize("length", [1, 2, 3, 1000, 4097])
def test_a_folded_sum_has_one_order(length: int) -> None:
    """Only numbers at the same place are added, so each device rounds alike."""
    numbers = torch.rand(length, dtype=torch.float64)
    found = flat._folded(numbers.clone())
    assert found.shape == (1,)
    assert math.isclose(float(found), math.fsum(numbers.tolist()), rel_tol=1e-12)
