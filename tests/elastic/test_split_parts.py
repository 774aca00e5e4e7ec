"""Engines whose micro-batches do not follow each other: the bits stay, also when one dies in the middle of a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edt_runner.splits import even_split
from support.crashes import crashing, gone
from support.training import Elastic
from support.waiting import until


def test_parts_that_are_not_contiguous_end_with_the_undisturbed_bits(
    attempt: Callable[..., Elastic], undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    """Five micro-batches on two engines; then one of them dies, and the other gets all; then on two again."""
    assert even_split(5, 2) == ((0, 1, 4), (2, 3))
    arguments = ("conv", "--workers", 5, "--samples", 119, "--batch", 2, "--epochs", 1)
    with attempt(*arguments, environ=crashing(tmp_path, "engine.in-reduce@6#2")) as training:
        training.settle([1, 2])
        training.gate.allow(8)
        until(lambda: gone(training) == {2: "lost"}, 60, "an engine has died")
        training.settle([1, 3])
        assert training.finish()["digest"] == undisturbed(*arguments)
