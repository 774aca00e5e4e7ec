"""An engine that computes wrong bits is found and named, and its wrong gradient is never applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edt_contract.reports import ReportKind
from edt_runner.engine.audit import choose
from edt_runner.splits import even_split
from support.crashes import crashed, crashing
from support.training import Elastic, with_pytorch_first

Attempt = Callable[..., Elastic]
CONV: tuple[object, ...] = ("conv", "--samples", 120)
"""8 training steps an epoch, and 3 slices of the validation."""
STEP, VALIDATION = 11, 3


def audited(
    attempt: Attempt, fault: str | None, *more: object, engines: Sequence[int] = (1, 2), interval: int = 1
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], str]:
    """Train with audits. Return the end, what was found, what ended the guarantee, and the driver's log."""
    environ = {} if fault is None else {"EDT_FAULT": fault}
    with attempt(*CONV, "--audit", interval, *more, environ=environ) as training:
        training.may_differ = True
        training.settle(engines)
        end = training.finish()
        found, ended = training.kinds(ReportKind.CORRUPTED), training.kinds(ReportKind.GUARANTEE_ENDED)
        return end, found, ended, (training.log_dir / "driver.err").read_text()


@with_pytorch_first
def test_a_flipped_bit_is_found_and_its_engine_named_and_the_bits_are_the_undisturbed_ones(
    attempt: Attempt, undisturbed: Callable[..., str]
) -> None:
    end, found, ended, log = audited(attempt, f"flip:{STEP}:2")
    (finding,) = found
    assert (finding["allocations"], finding["certain"], finding["step"]) == ([2], True, STEP)
    assert f"engine 2 computed micro-batch {finding['micro_batch']} of step {STEP} with other bits" in log
    assert "were computed by a second engine, too" in log
    assert end["digest"] == undisturbed(*CONV) and not ended


@pytest.mark.extended
@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_of_three_engines_the_one_that_keeps_computing_wrong_is_named_and_ends_the_guarantee(
    attempt: Attempt, wrong: int
) -> None:
    end, found, ended, _ = audited(attempt, f"flips:{STEP - 3}:{wrong}", engines=(1, 2, 3))
    (finding,), (ending,) = found, ended
    assert (finding["allocations"], finding["certain"]) == ([wrong], True)
    assert ending["what"] == "audit" and ending["why"].startswith(f"engine {wrong} computed micro-batch ")
    assert ending["why"].endswith("with other bits than the others, and again when the step was repeated")
    assert end["kind"] == "finished"


@pytest.mark.extended
def test_two_engines_that_never_agree_are_both_named_and_a_training_that_must_be_exact_ends(attempt: Attempt) -> None:
    end, found, ended, _ = audited(attempt, f"flips:{STEP}:2", "--require-exact")
    assert [(sorted(finding["allocations"]), finding["certain"]) for finding in found] == [([1, 2], False)]
    assert len(ended) == 1 and end["kind"] == "script-error"
    assert "require_exact=True, and the result is no longer exact because of audit: engines " in end["message"]


@pytest.mark.extended
@pytest.mark.parametrize("more", [("--reduction", "fast"), ("--scaling", "per_engine"), ("--loaders", 1)])
def test_a_flipped_bit_is_found_however_a_step_is_made(attempt: Attempt, more: Sequence[object]) -> None:
    end, found, ended, _ = audited(attempt, "flip:13:2", *more)
    assert [(finding["allocations"], finding["certain"]) for finding in found] == [([2], True)]
    assert end["kind"] == "finished" and all(each["what"] == "reduction" for each in ended)


@pytest.mark.extended
def test_audits_that_find_nothing_change_nothing(attempt: Attempt, undisturbed: Callable[..., str]) -> None:
    end, found, ended, _ = audited(attempt, None, "--loaders", 1, engines=(1, 2, 3))
    assert end["digest"] == undisturbed(*CONV) and not found and not ended


def step_audited_by(*roles: str) -> tuple[int, list[int]]:
    """The first step of the second epoch that is late enough, and the engines of these roles in it. Engines 1, 2 and 3
    have joined in this order."""
    step = STEP
    choice = choose(7, step + VALIDATION, even_split(4, 3), lambda index: True)
    return step, [1 + getattr(choice, role) for role in roles]


@pytest.mark.extended
@pytest.mark.parametrize("role", ["owner", "auditor"])
def test_of_three_engines_the_one_that_is_wrong_once_is_named(
    attempt: Attempt, undisturbed: Callable[..., str], role: str
) -> None:
    step, (wrong,) = step_audited_by(role)
    with attempt(*CONV, "--audit", 1, environ={"EDT_FAULT": f"flip:{step}:{wrong}"}) as training:
        for engines in ([1], [1, 2], [1, 2, 3]):
            training.settle(engines)
        end = training.finish()
        (finding,) = training.kinds(ReportKind.CORRUPTED)
    assert (finding["allocations"], finding["certain"], finding["step"]) == ([wrong], True, step)
    assert end["digest"] == undisturbed(*CONV)


@pytest.mark.extended
@pytest.mark.parametrize("place", ["engine.before-reduce", "engine.before-gather", "engine.reduced"])
def test_wrong_sums_are_not_kept_if_an_engine_dies_in_an_audited_step(
    attempt: Attempt, tmp_path: Path, undisturbed: Callable[..., str], place: str
) -> None:
    step, (wrong, other) = step_audited_by("owner", "auditor")
    dies = 6 - wrong - other
    environ = crashing(tmp_path, f"{place}@{step + VALIDATION}#{dies}", EDT_FAULT=f"flip:{step}:{wrong}")
    with attempt(*CONV, "--audit", 1, environ=environ) as training:
        for engines in ([1], [1, 2], [1, 2, 3]):
            training.settle(engines)
        end = training.finish()
        assert crashed(training)
    assert end["digest"] == undisturbed(*CONV)
