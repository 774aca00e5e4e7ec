"""Newcomers: how long they wait, what they cost, and engines on several nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient
from support.nursery import Nursery
from support.training import SCRIPTS, Elastic, spec_for, with_pytorch_first
from support.waiting import until

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]


def test_a_joining_engine_that_gets_no_weights_asks_again_and_then_stops_while_the_job_goes_on(
    attempt: Attempt, undisturbed: Undisturbed
) -> None:
    """The gate holds the members in one step, so nobody hands over anything."""
    environ = {"EDT_PULL_WEIGHT_TIME_OUT": "0.3", "EDT_PULL_FAILED_LIMITS": "2"}
    expected = undisturbed("conv", "--samples", 40)
    with attempt("conv", "--samples", 40, environ=environ) as training:
        training.settle([1])
        training.gate.close()
        training.hold([1, 2])
        training.supervisor.until(lambda report: report.kind is ReportKind.ENGINE_GONE)
        gone = training.kinds(ReportKind.ENGINE_GONE)[0]
        assert (gone["allocation"], gone["kind"]) == (2, "pull-failed")
        assert [body["count"] for body in training.kinds(ReportKind.PULL_FAILED)] == [1, 2, 3]
        assert (training.log_dir / "engine-2.out").read_text().count("PULL_FAILED") == 3
        assert training.finish()["digest"] == expected
        assert training.kinds(ReportKind.RESIZED) == []


def test_a_joining_engine_that_failed_once_gets_in_at_the_next_try(attempt: Attempt) -> None:
    environ = {"EDT_PULL_WEIGHT_TIME_OUT": "1", "EDT_PULL_FAILED_LIMITS": "1000"}
    with attempt("conv", environ=environ) as training:
        training.settle([1])
        training.gate.close()
        training.hold([1, 2])
        training.supervisor.until(lambda report: report.kind is ReportKind.PULL_FAILED)
        training.settle([1, 2])
        assert training.finish()["kind"] == "finished"


def test_every_resize_is_reported_with_its_pause(attempt: Attempt) -> None:
    """Here the training is held for a second where it would switch. The pause is that, less a steady step, of which
    eight were measured: at least four were as long as their median."""
    with attempt("conv", "--epochs", 4) as training:
        training.settle([1])
        training.hold([1, 2])
        training.await_ready([2])
        until(training.gate.is_asked_for, 60, "all have built the group")
        began = time.monotonic()
        training.gate.allow(training.gate.allowed + 1)  # in which the switch is announced
        training.gate.close()
        held = time.monotonic()
        time.sleep(1.0)
        opened = time.monotonic()
        training.gate.allow(training.gate.allowed + 14)
        training.gate.until(lambda: bool(training.kinds(ReportKind.RESIZED)))
        reported = time.monotonic()
        resize = training.kinds(ReportKind.RESIZED)[0]
        training.finish()
    assert (resize["workers"], resize["joined"], resize["left"]) == (2, [2], [])
    assert opened - held - (reported - opened) / 4 <= resize["pause_seconds"] <= reported - began


@with_pytorch_first
def test_two_supervisors_are_two_nodes_of_one_training(
    nursery: Nursery, tmp_path: Path, framework: str, undisturbed: Undisturbed
) -> None:
    """Engines 1, 2 on one node, 3, 4 on the other; then the first node gives up its engines, then takes one back."""
    expected = undisturbed("conv")
    first = spec_for(tmp_path / "job", "conv", framework=framework)
    second = spec_for(tmp_path / "job", "conv", framework=framework, node="there", spool_dir=str(tmp_path / "there"))
    with Elastic(first, nursery.start) as training, SupervisorClient(second, nursery.start) as there:
        training.settle([1, 2])
        address = training.kinds(ReportKind.COORDINATOR_AT)[0]["address"]
        there.hold([3, 4], coordinator=address)
        training.await_ready([3, 4])
        training.gate.until(lambda: training.training() == {1, 2, 3, 4}, sparing=True)
        training.hold([])
        training.gate.until(
            lambda: {b["allocation"] for b in training.kinds(ReportKind.ENGINE_GONE)} == {1, 2}, sparing=True
        )
        training.hold([5])
        training.await_ready([5])
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_JOINED, allocation=5), sparing=True)
        there.hold([], coordinator=address)
        training.gate.until(
            lambda: any(report.kind is ReportKind.ATTEMPT_ENDED for report in there.poll()), sparing=True
        )
        assert there.reports[-1].body["kind"] == "left"
        assert training.finish()["digest"] == expected


def test_an_attempt_ends_everywhere_when_it_ends_where_it_is_led(nursery: Nursery, tmp_path: Path) -> None:
    first = spec_for(tmp_path / "job", "conv", "--samples", 40)
    second = spec_for(tmp_path / "job", "conv", "--samples", 40, node="there", spool_dir=str(tmp_path / "there"))
    with Elastic(first, nursery.start) as training, SupervisorClient(second, nursery.start) as there:
        training.settle([1])
        there.hold([2], coordinator=training.kinds(ReportKind.COORDINATOR_AT)[0]["address"])
        training.await_ready([2])
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_JOINED, allocation=2), sparing=True)
        assert training.finish()["kind"] == "finished"
        assert there.ended()["kind"] == "finished"


def test_a_joining_engine_that_raises_goes_and_the_training_goes_on(
    attempt: Attempt, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    main = tmp_path / "main.py"
    main.write_text(
        "from edt_runner import context\n"
        "if context.current().name == '2':\n    raise RuntimeError('this GPU is in use')\n"
        + (SCRIPTS / "conv.py").read_text()
    )
    expected = undisturbed("conv")
    with attempt(main) as training:
        training.settle([1])
        training.hold([1, 2])
        until(lambda: training.happened(ReportKind.ENGINE_GONE, allocation=2), 60)
        assert training.finish()["digest"] == expected
        assert (
            "engine 2 did not join: RuntimeError: this GPU is in use" in (training.log_dir / "driver.err").read_text()
        )
