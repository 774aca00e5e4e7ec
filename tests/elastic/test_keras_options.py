"""A Keras training with much that a user may ask for, at once: the same bits whatever the engines do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.crashes import crashed, crashing
from support.training import Elastic

pytestmark = [pytest.mark.tensorflow, pytest.mark.parametrize("framework", ["tensorflow"], indirect=True)]
Attempt = Callable[..., Elastic]
A_STEP = 30
"""Of 36 offsets: an epoch has 7 steps and then 2 slices of the validation."""


def test_all_at_once_has_the_bits_of_one_engine_over_a_join_a_leave_and_a_kill(
    attempt: Attempt, undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    """The loss's scale, the schedule, the noise and what the callback remembers are known to whoever joins."""
    with attempt("asked", environ=crashing(tmp_path, f"engine.reduced@{A_STEP}#3")) as training:
        for engines in ([1], [1, 2], [2, 3]):
            training.settle(engines)
        end = training.finish()
        assert crashed(training)
        resizes = training.kinds(ReportKind.RESIZED)
    assert (end["kind"], end["message"]) == ("finished", "")
    assert end["digest"] == undisturbed("asked")
    assert {engine for resize in resizes for engine in resize["joined"]} >= {2, 3}
    assert any(1 in resize["left"] for resize in resizes)


@pytest.mark.extended
def test_each_option_is_part_of_the_result(undisturbed: Callable[..., str]) -> None:
    """Else equal digests would say nothing."""
    whole = undisturbed("asked")
    for name in ("lr_scheduler", "clip_grad_norm", "clip_grad_value", "callback"):
        assert undisturbed("asked", "--without", name) != whole, name


@pytest.mark.extended
@pytest.mark.parametrize("limit", ["clipnorm", "global_clipnorm", "clipvalue"])
def test_the_optimizers_own_limits_act_on_the_gradient_of_all_engines(
    attempt: Attempt, undisturbed: Callable[..., str], limit: str
) -> None:
    """Two engines and four, from the first step."""
    digests = {undisturbed("asked", "--limit", limit)}
    for engines in (2, 4):
        with attempt("asked", "--limit", limit, folder=f"by-{engines}") as training:
            training.settle(range(1, engines + 1))
            digests.add(training.finish()["digest"])
    assert len(digests) == 1
