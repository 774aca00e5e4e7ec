"""The same bits whatever the engines do: SHA-256 over parameters, buffers and optimizer state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from support.training import Both, Elastic, cases, on_both_frameworks, with_pytorch_first

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]
CONV = ("conv", "--loaders", 2)


def static_digest(attempt: Attempt, engines: int, *arguments: object) -> str:
    """Train with all ``engines`` there before the first step is allowed past."""
    with attempt(*arguments, folder=f"static-{engines}") as training:
        training.settle(range(1, engines + 1))
        end = training.finish()
    assert end["kind"] == "finished", end
    return str(end["digest"])


@pytest.fixture
def digest(undisturbed: Undisturbed) -> str:
    return undisturbed(*CONV)


@cases("engines", [Both(2), Both(3), Both(4)])
def test_any_number_of_engines_gives_the_bits_of_one(attempt: Attempt, digest: str, engines: int) -> None:
    assert static_digest(attempt, engines, *CONV) == digest


@on_both_frameworks
def test_joins_and_leaves_change_nothing(attempt: Attempt, digest: str) -> None:
    """1 → 2 → 4 → 3 (the first member leaves) → 2 → 3 → 1: five joins and five leaves."""
    with attempt(*CONV) as training:
        for engines in ([1], [1, 2], [1, 2, 3, 4], [2, 3, 4], [3, 4], [3, 4, 5], [5]):
            training.settle(engines)
        end = training.finish()
        resizes = training.kinds(ReportKind.RESIZED)
    assert end["digest"] == digest
    assert sum(len(resize["joined"]) for resize in resizes) >= 3
    assert sum(len(resize["left"]) for resize in resizes) >= 3
    assert any(1 in resize["left"] for resize in resizes)
    assert all(
        not audit.lost and not audit.repeated
        for audit in record.audit(record.read(training.sample_record), samples=237, epochs=2)
    )


@pytest.mark.extended
def test_a_step_of_the_users_own_has_the_bits_of_the_platforms(attempt: Attempt, digest: str) -> None:
    with attempt(*CONV, "--own-step") as training:
        for engines in ([1], [1, 2, 3], [2, 3]):
            training.settle(engines)
        end = training.finish()
    assert end["digest"] == digest


@with_pytorch_first
def test_a_member_can_be_replaced_while_it_is_the_only_one(attempt: Attempt, digest: str) -> None:
    with attempt(*CONV) as training:
        training.settle([1])
        training.settle([2])
        end = training.finish()
    assert end["digest"] == digest


@with_pytorch_first
def test_fast_reduction_depends_on_the_number_of_engines(attempt: Attempt) -> None:
    arguments = ("conv", "--reduction", "fast", "--samples", 64)
    assert static_digest(attempt, 1, *arguments) != static_digest(attempt, 3, *arguments)


@with_pytorch_first
def test_the_code_behind_train_runs_once(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1, 2])
        training.finish()
        counts = [path.read_text().count("runs once") for path in training.log_dir.glob("*.out")]
    assert sum(counts) == 1
