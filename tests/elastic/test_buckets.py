"""A model whose gradients are reduced in buckets while its backward pass runs ends with the bits of one engine, also
when engines die with buckets on their way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.crashes import crashed, crashing, gone
from support.training import Elastic

LARGE = ("conv", "--classes", 24000)
"""A last layer of 9 MB: three buckets. Two epochs of fifteen steps of four micro-batches."""


def test_engines_die_with_buckets_on_their_way(
    attempt: Callable[..., Elastic], undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    """One of four behind its first bucket, then one of three between two sends, then one of two that has summed all."""
    places = ("engine.bucket@8#1", "engine.in-reduce@13#3", "engine.before-gather@22")
    with attempt(*LARGE, environ=crashing(tmp_path, *places)) as training:
        training.settle([1, 2, 3, 4])
        end = training.finish()
        assert crashed(training)
        assert list(gone(training).values()).count("lost") == 3
    assert end["digest"] == undisturbed(*LARGE)


@pytest.mark.extended
def test_joins_and_leaves_of_a_large_model_change_nothing(
    attempt: Callable[..., Elastic], undisturbed: Callable[..., str]
) -> None:
    with attempt(*LARGE) as training:
        training.settle([1])
        training.gate.allow(2)
        training.settle([1, 2, 3])
        training.gate.allow(5)
        training.settle([2])
        assert training.finish()["digest"] == undisturbed(*LARGE)


@pytest.mark.extended
def test_a_fast_reduction_survives_a_death_too(attempt: Callable[..., Elastic], tmp_path: Path) -> None:
    with attempt(*LARGE, "--reduction", "fast", environ=crashing(tmp_path, "engine.backward@10#2")) as training:
        training.settle([1, 2, 3])
        assert training.finish()["digest"]
        assert gone(training)[2] == "lost"
        assert training.kinds(ReportKind.VALIDATED)
