"""Engines that reduce by collectives, as GPUs do over NCCL, end with the bits of one engine. Here gloo carries the
collectives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.crashes import crashed, crashing, gone
from support.training import Elastic

LARGE = ("conv", "--classes", 24000)
"""A last layer of 9 MB: three buckets. Two epochs of fifteen steps of four micro-batches."""
OVER = {"EDT_COLLECTIVES": "over-gloo"}


def changes(training: Elastic, engine: int) -> int:
    """How often the engine's reductions have changed over to collectives."""
    return sum(path.read_text().count("reductions go over") for path in training.log_dir.glob(f"*{engine}*"))


def test_joins_leaves_and_deaths_over_collectives_change_nothing(
    attempt: Callable[..., Elastic], undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    """1 → 3 engines, one of three dies with its first bucket on its way, then one of two that has summed all."""
    environ = crashing(tmp_path, "engine.bucket@10#3", "engine.before-gather@20", **OVER)
    with attempt(*LARGE, environ=environ) as training:
        training.settle([1])
        training.gate.allow(3)
        training.settle([1, 2, 3])
        end = training.finish()
        assert crashed(training)
        assert list(gone(training).values()).count("lost") == 2
        assert changes(training, 1) >= 2 or changes(training, 2) >= 2
    assert end["digest"] == undisturbed(*LARGE)


@pytest.mark.extended
def test_a_fast_reduction_over_collectives_survives_a_death(attempt: Callable[..., Elastic], tmp_path: Path) -> None:
    environ = crashing(tmp_path, "engine.bucket@10#2", **OVER)
    with attempt(*LARGE, "--reduction", "fast", environ=environ) as training:
        training.settle([1, 2, 3])
        assert training.finish()["digest"]
        assert gone(training)[2] == "lost"
