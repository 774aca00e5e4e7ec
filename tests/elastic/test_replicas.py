"""Engines that come to hold different trainings are found out, and the user is told by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from support.training import Elastic

Attempt = Callable[..., Elastic]
RATE = "optimizer setting lr of group 0"


def log_of(training: Elastic) -> str:
    return (training.log_dir / "driver.err").read_text()


def grow(training: Elastic, after: int = 1) -> None:
    """Engine 1 is the first, engine 2 joins it after so many steps."""
    training.settle([1])
    training.gate.allow(after)
    training.gate.close()
    training.settle([1, 2])


def is_gone(training: Elastic, engine: int) -> bool:
    return any(body["allocation"] == engine for body in training.kinds(ReportKind.ENGINE_GONE))


@pytest.mark.parametrize("loop", ["fabric", "own"])
def test_a_schedule_that_begins_anew_in_a_joining_engine_is_found_marked_and_mended(
    attempt: Attempt, loop: str
) -> None:
    with attempt("scheduled", "--loop", loop, "--epochs", 20, "--warm-up", 6, max_engines=4) as training:
        training.may_differ = True
        grow(training, after=4)
        end = training.finish()
        (ended,) = training.kinds(ReportKind.GUARANTEE_ENDED)
        compared = training.kinds(ReportKind.REPLICAS_COMPARED)
        log = log_of(training)
    assert end["kind"] == "finished", end
    assert (ended["engine"], ended["what"]) == (2, "replicas")
    assert ended["difference"].startswith(f"{RATE}: ") and "in engine 1" in ended["difference"]
    assert compared[0] == {"step": ended["step"], "engines": 2, "equal": False, "reason": "join"}
    assert compared[-1]["reason"] == "end" and compared[-1]["equal"]
    assert "no longer exact because of replicas" in log and "The result is not exact because of replicas" in log


def test_replicas_that_stay_equal_are_compared_at_the_join_and_at_the_end_and_the_log_says_so(attempt: Attempt) -> None:
    with attempt("scheduled", "--warm-up", 0) as training:
        grow(training)
        training.finish()
        compared = training.kinds(ReportKind.REPLICAS_COMPARED)
        log = log_of(training)
    assert {found["reason"] for found in compared} >= {"join", "end"}
    assert all(found["equal"] and found["engines"] == 2 for found in compared)
    assert f"replicas were compared {len(compared)} times, last at step 8: they were equal" in log


@pytest.mark.parametrize(
    ("engines", "interval", "words"),
    [
        ([1], None, "never compared: one engine trained at a time"),
        ([1, 2], 0, "never compared, though several engines"),
    ],
)
def test_a_training_whose_replicas_were_never_compared_says_so(
    attempt: Attempt, engines: list[int], interval: int | None, words: str
) -> None:
    asked = () if interval is None else ("--interval", interval)
    with attempt("scheduled", "--warm-up", 0, *asked) as training:
        training.settle(engines)
        training.finish()
        assert not training.kinds(ReportKind.REPLICAS_COMPARED)
        assert words in log_of(training)


def test_a_mismatch_ends_the_training_where_that_is_asked_for(attempt: Attempt) -> None:
    hurt = ("scheduled", "--warm-up", 0, "--fault-once", 2, "--interval", 1)
    with attempt(*hurt, "--on-mismatch", "stop") as training:
        training.may_differ = True
        grow(training)
        end = training.finish()
        (ended,) = training.kinds(ReportKind.GUARANTEE_ENDED)
    assert end["kind"] == "script-error"
    assert "on_mismatch='stop'" in end["message"] and "parameter weight" in end["message"]
    assert ended["difference"].startswith("parameter weight: ") and ended["engine"] == 2


def test_a_mismatch_ends_a_training_whose_result_must_be_exact(attempt: Attempt) -> None:
    hurt = ("scheduled", "--warm-up", 0, "--fault-once", 2, "--interval", 1)
    with attempt(*hurt, "--require-exact") as training:
        training.may_differ = True
        grow(training)
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "require_exact=True" in end["message"] and "parameter weight" in end["message"]


def test_all_go_back_to_a_checkpoint_at_which_they_were_equal_and_end_with_the_undisturbed_bits(
    attempt: Attempt,
) -> None:
    """A bit flips once, later checkpoints hold it, and none of them is gone back to."""
    script = ("scheduled", "--warm-up", 0, "--epochs", 6, "--recovery", 0.001)
    with attempt(*script, folder="undisturbed") as training:
        training.settle([1])
        undisturbed = training.finish()["digest"]
    with attempt(*script, "--on-mismatch", "restore", "--fault-once", 7, "--interval", 6) as training:
        training.may_differ = True
        grow(training)
        end = training.finish()
        compared = [(found["step"], found["equal"]) for found in training.kinds(ReportKind.REPLICAS_COMPARED)]
        log = log_of(training)
    assert end["kind"] == "finished" and end["digest"] == undisturbed
    (differed,) = [step for step, equal in compared if not equal]
    assert compared.count((differed, True)) == 1, "the step at which they differed was done again, and compared"
    assert "parameter weight" in log
    audits = record.audit(record.read(training.sample_record), samples=64, epochs=6)
    assert not any(audit.lost or audit.repeated for audit in audits)


def test_what_differs_again_after_going_back_ends_the_training(attempt: Attempt) -> None:
    """A schedule that begins anew in a joining engine does so whatever it goes back to."""
    script = ("scheduled", "--epochs", 20, "--warm-up", 1000, "--recovery", 0.001, "--on-mismatch", "restore")
    with attempt(*script) as training:
        training.may_differ = True
        grow(training, after=6)
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "for the second time" in end["message"] and RATE in end["message"]


def test_an_engine_that_computes_with_other_threads_ends_the_guarantee_by_name(attempt: Attempt) -> None:
    with attempt("scheduled", "--warm-up", 0, "--threads", 2) as training:
        grow(training)
        assert training.finish()["kind"] == "finished"
        (ended,) = training.kinds(ReportKind.GUARANTEE_ENDED)
        log = log_of(training)
    assert ended["what"] == "unlike engines" and ended["engine"] == 2
    assert ended["difference"] == "threads: 1 in engine 1, 2 in engine 2"
    assert "The result is not exact because of unlike engines" in log


def test_an_unlike_engine_does_not_join_a_training_whose_result_must_be_exact(attempt: Attempt) -> None:
    with attempt("scheduled", "--warm-up", 0, "--threads", 2, "--require-exact") as training:
        training.settle([1])
        training.hold([1, 2])
        training.gate.until(lambda: is_gone(training, 2))
        end = training.finish()
        assert training.kinds(ReportKind.ENGINE_GONE)[0]["kind"] == "pull-failed"
        log = log_of(training)
        assert not training.kinds(ReportKind.GUARANTEE_ENDED)
        assert len(training.kinds(ReportKind.ENGINE_STARTED)) == 2, "nothing was tried again"
    assert end["kind"] == "finished"
    assert "engine 2 was sent away: require_exact=True, and threads: 1 in engine 1, 2 in engine 2" in log


@pytest.mark.parametrize("required", [False, True])
def test_a_training_that_goes_on_with_other_threads_is_marked_or_refused(attempt: Attempt, required: bool) -> None:
    script = ("scheduled", "--warm-up", 0, "--recovery", 0.001, *(["--require-exact"] if required else []))
    with attempt(*script) as training:
        training.settle([1])
        training.gate.until(lambda: bool(training.kinds(ReportKind.CHECKPOINTED)))
        training.hold([])
        training.gate.open()
        assert training.supervisor.ended(60)["kind"] == "left"
    with attempt(*script, fence=2, threads=2) as training:
        training.hold([1])
        end = training.finish()
        log = log_of(training)
    words = "threads: 1 in the engines before, 2 in engine 1"
    if required:
        assert end["kind"] == "script-error" and words in end["message"]
    else:
        assert end["kind"] == "finished"
        assert f"goes on from a checkpoint, and {words}" in log and "The result is not exact" in log
