"""Engines that come to hold different trainings are found out, and the user is told by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edt_runner.contract import ReportKind
from support.training import Elastic

Attempt = Callable[..., Elastic]
RATE = "optimizer setting lr of group 0"


def said(training: Elastic) -> str:
    return (training.log_dir / "driver.err").read_text()


@pytest.mark.parametrize("loop", ["fabric", "own"])
def test_a_scheduler_that_begins_anew_in_a_joining_engine_is_found_marked_and_mended(
    attempt: Attempt, loop: str
) -> None:
    with attempt("scheduled", "--loop", loop, "--epochs", 20, "--warm-up", 6, max_engines=4) as training:
        training.settle([1])
        training.gate.allow(4)
        training.gate.close()
        training.settle([1, 2])
        end = training.finish()
        (ended,) = training.kinds(ReportKind.GUARANTEE_ENDED)
        compared = training.kinds(ReportKind.REPLICAS_COMPARED)
        log = said(training)
    assert end["kind"] == "finished", end
    assert (ended["engine"], ended["what"]) == (2, "replicas")
    assert ended["difference"].startswith(f"{RATE}: ") and "in engine 1" in ended["difference"]
    assert compared[0] == {"step": ended["step"], "engines": 2, "equal": False, "reason": "join"}
    assert compared[-1]["reason"] == "end" and compared[-1]["equal"]
    assert "no longer exact because of replicas" in log and "The result is not exact because of replicas" in log
