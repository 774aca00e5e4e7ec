"""The same on a GPU: engines come and go, die, and change from gloo to NCCL, and end with the bits of one engine.

On a machine with one GPU all engines share it. NCCL refuses that before release 2.30, and from there on unless
NCCL_MULTI_RANK_GPU_ENABLE is 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.crashes import crashed, crashing, gone
from support.training import Elastic
from support.waiting import until

Attempt = Callable[..., Elastic]

LARGE = ("conv", "--classes", 24000)
"""A last layer of 9 MB: three buckets."""


def digests_of(
    attempt: Attempt, schedules: dict[str, list[list[int]]], *script: object, **environ: str
) -> Iterator[str]:
    """Train on device 0 with each of these schedules of engines. The guarantee holds to the end, since no op of the
    script lacks a deterministic form."""
    for folder, schedule in schedules.items():
        with attempt(*script, folder=folder, environ=environ) as training:
            training.device = "0"
            for engines in schedule:
                training.settle(engines)
                training.gate.allow(3)
            yield training.finish()["digest"]
            assert training.kinds(ReportKind.GUARANTEE_ENDED) == []


CONNECTED, CHANGED = "connected for reductions over the faster network", "reductions go over nccl now"


def said(training: Elastic, what: str) -> int:
    """How often engines have said something."""
    return sum(path.read_text().count(what) for path in training.log_dir.glob("*"))


@pytest.mark.cuda
@pytest.mark.parametrize("script", [("conv",), LARGE], ids=["conv", "large"])
def test_on_a_gpu_joins_and_leaves_change_nothing(attempt: Attempt, script: tuple[object, ...]) -> None:
    schedules = {"static": [[1]], "elastic": [[1], [1, 2], [2]], "two": [[1, 2]]}
    assert len(set(digests_of(attempt, schedules, *script, EDT_COLLECTIVES="gloo"))) == 1


@pytest.mark.cuda
def test_on_a_gpu_a_fast_reduction_ends_too(attempt: Attempt) -> None:
    schedules = {"fast": [[1], [1, 2], [2]]}
    assert list(digests_of(attempt, schedules, *LARGE, "--reduction", "fast"))


@pytest.mark.cuda
@pytest.mark.skipif(
    not os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE"),
    reason="two engines on one GPU need NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1",
)
@pytest.mark.parametrize("place", ["engine.bucket@24#2", "engine.before-gather@24#2", "engine.in-reduce@24#1"])
def test_over_nccl_a_death_changes_nothing(attempt: Attempt, tmp_path: Path, place: str) -> None:
    """One of two engines dies in the step of that offset."""
    (undisturbed,) = digests_of(attempt, {"static": [[1]]}, *LARGE)
    with attempt(*LARGE, environ=crashing(tmp_path, place)) as training:
        training.device = "0"
        training.settle([1, 2])
        until(lambda: said(training, CONNECTED) == 2, 60.0, "both engines are connected over NCCL")
        end = training.finish()
        assert crashed(training)
        assert list(gone(training).values()).count("lost") == 1
        assert said(training, CHANGED) == 2
    assert end["digest"] == undisturbed
