"""Any process dies at any instruction: the training goes on, with the same bits, and each sample counts once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from edt_contract import processes
from edt_contract.reports import ReportKind
from support import crashes
from support.crashes import CONV, EPOCHS, arm, assert_unharmed, crashed, crashing, gone, losses
from support.training import Both, BothAtOnce, Elastic, Later, cases, counted, with_pytorch_first
from support.waiting import until

Attempt = Callable[..., Elastic]


CHANGING: tuple[object, ...] = (*CONV[:-1], 2 * EPOCHS)
"""With steps enough for several changes of the membership."""


@pytest.fixture
def digest(undisturbed: Callable[..., str]) -> str:
    """What the training ends with when nothing happens to it."""
    return undisturbed(*CONV)


@pytest.fixture
def longer_digest(undisturbed: Callable[..., str]) -> str:
    return undisturbed(*CHANGING)


# ── one engine after the other, each in the middle of its work ────────────────────────────────────────────────
@cases(
    "places",
    [
        Both(("engine.forward@8#1", "engine.backward@22#3", "engine.forward@40#4")),  # the first, the middle, the last
        (("engine.before-reduce@8", "engine.committed@22", "engine.reduced@40"),),  # whoever comes there first
        (("engine.in-reduce@8", "engine.before-gather@34", "engine.applied@53"),),  # … in a validation, the last offset
        Later(("engine.before-gather@8#4", "engine.in-reduce@22#2", "engine.before-reduce@40#3")),
        Later(("engine.reduced@8#3", "engine.before-gather@22#1", "engine.in-reduce@40#2")),
        BothAtOnce(("engine.applied@8#1", "engine.applied@22#3", "engine.before-gather@40")),
        Both(("engine.validate@16#2", "engine.applied@35", "engine.hand-over")),  # … at an epoch's end, at the very end
        Both(("engine.checkpoint@18", "engine.validate@34", "engine.in-reduce@50")),  # … in the last step
        (("engine.before-reduce@53#3",),),
    ],
)
def test_an_engine_dies(attempt: Attempt, tmp_path: Path, digest: str, places: tuple[str, ...]) -> None:
    """One of four, then one of the three that are left, then one of two."""
    with attempt(*CONV, environ=crashing(tmp_path, *places)) as training:
        training.settle([1, 2, 3, 4])
        if places[0] == "engine.checkpoint@18":  # written beside the steps, which are not to overtake the disk
            training.gate.allow(16)
            until(lambda: "lost" in gone(training).values(), 60, "the engine that writes it has died")
        end = training.finish()
        assert crashed(training)
        assert list(gone(training).values()).count("lost") == len(places)
        assert [loss.workers for loss in losses(training)] == [3, 2, 1][: len(places)]
        validated = training.kinds(ReportKind.VALIDATED)  # which a new first engine may report again
        assert list(dict.fromkeys(body["epoch"] for body in validated)) == [1, 2, 3]
        assert len({(body["epoch"], body["step"], body["metrics"]["loss"]) for body in validated}) == 3
    assert_unharmed(training, end, digest)


@cases("place", ["engine.regroup#1", Both("engine.regroup#3"), Later("engine.forward@22#3"), "engine.applied@22#4"])
def test_a_second_engine_dies_while_the_others_find_together(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, "engine.in-reduce@22#2", place)) as training:
        training.settle([1, 2, 3, 4])
        end = training.finish()
        assert crashed(training)
        assert sorted(engine for loss in losses(training) for engine in loss.engines) == sorted({2, int(place[-1])})
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize(
    "place",
    [
        "engine.regroup#1",  # it has not heard of the loss
        "engine.applied@22#1",  # it has begun to measure what the loss cost
        "engine.applied@32#1",  # in the last step that it measures: the others know, and it has not told
        "engine.committed@32#1",  # it has told
    ],
)
def test_a_loss_is_told_once_though_the_engine_that_tells_it_dies(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, "engine.in-reduce@22#2", place)) as training:
        training.settle([1])  # the first of them
        training.settle([1, 2, 3, 4])
        end = training.finish()
        assert crashed(training)
        assert sorted(engine for loss in losses(training) for engine in loss.engines) == [1, 2]
    assert_unharmed(training, end, digest)


def test_all_but_one_die_at_the_weights_for_the_driver(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    places = ("engine.hand-over#1", "engine.hand-over#2")
    with attempt(*CONV, environ=crashing(tmp_path, *places)) as training:
        training.settle([1])
        training.settle([1, 2])
        training.settle([1, 2, 3])
        end = training.finish()
        assert crashed(training)
    assert_unharmed(training, end, digest)


# ── some have committed what others have not ──────────────────────────────────────────────────────────────────
@cases(
    "cut, dead, rounds",
    [
        ((3,), "", 1),  # two have applied, one is held up before it could
        Both((2, 3), "", 1),  # the only one that has applied lives, and gives to both
        ((3,), "engine.applied@22#2", 1),  # an owner of a shard dies, one has it all, one is a step behind
        Later((3,), "engine.reduced@22#2", 1),
        ((1, 3), "engine.applied@22#2", 2),  # the only one that has applied dies: nobody has, so it is reduced again
    ],
)
def test_an_engine_is_one_step_behind(
    attempt: Attempt, tmp_path: Path, digest: str, framework: str, cut: tuple[int, ...], dead: str, rounds: int
) -> None:
    main = crashes.cut_off(tmp_path, framework, crashes.A_STEP, *cut)
    with attempt(main, *CONV[1:], environ=crashing(tmp_path, *filter(None, [dead]))) as training:
        training.settle([1, 2, 3])
        end = training.finish()
        assert not dead or crashed(training)
    assert_unharmed(training, end, digest)
    assert crashes.rounds_of(training, 19) == rounds


# ── engines that come and go ──────────────────────────────────────────────────────────────────────────────────
@cases(
    "places",
    [
        Both(("engine.join#3", "engine.joined#4", "engine.switched")),
        (("engine.switch#1", "engine.switch#3", "engine.switched#2"),),  # the first, the second, the first of two
    ],
)
def test_somebody_dies_while_an_engine_joins(
    attempt: Attempt, tmp_path: Path, longer_digest: str, places: tuple[str, ...]
) -> None:
    """The joining engine or one of the two that it joins; then another one joins, and so on."""
    with attempt(*CHANGING, environ=crashing(tmp_path, *places, armed=False)) as training:
        training.settle([1])
        training.settle([1, 2])
        for joining, place in enumerate(places, 3):
            arm(training, place)
            training.hold({*range(1, joining + 1)} - set(gone(training)))
            die(training, joining, place)
            assert list(gone(training).values()).count("lost") == joining - 2
            training.settle({*range(1, joining + 1)} - set(gone(training)))
        training.settle({*range(1, 4 + len(places))} - set(gone(training)))
        end = training.finish()
    assert_unharmed(training, end, longer_digest, epochs=2 * EPOCHS)


def die(training: Elastic, joining: int, place: str, leaving: Collection[int] = ()) -> None:
    """Let the training come to ``place``, where somebody dies while ``joining`` joins and ``leaving`` leave."""
    until(lambda: training.gate.is_ready(joining), 60, f"{joining} is ready")
    known = set(gone(training))

    def over() -> bool:
        ended = set(gone(training))  # some of those that leave may be before the joining engine is ready
        return crashed(training, place) and (ended >= {*leaving} if leaving else ended > known)

    training.gate.until(over, sparing=True)


@cases(
    "places, stay",
    [
        Both(("engine.leave#3", "engine.leave#1", "engine.switch#5"), ([1, 2], [2, 4], [2, 4])),  # a leaver
        (("engine.switched#1", "engine.switch#2", "engine.before-gather#6"), ([1, 2], [2, 4], [6])),  # one that stays
    ],
)
def test_somebody_dies_while_an_engine_leaves(
    attempt: Attempt, tmp_path: Path, longer_digest: str, places: tuple[str, ...], stay: tuple[list[int], ...]
) -> None:
    """There are three engines each time, of which those stay, and one comes in its place."""
    with attempt(*CHANGING, environ=crashing(tmp_path, *places, armed=False)) as training:
        training.settle([1])
        training.settle([1, 2, 3])
        engines, newest = {1, 2, 3}, 3
        for place, those in zip(places, stay, strict=True):
            newest += 1
            arm(training, place)
            training.hold([*those, newest])
            die(training, newest, place, engines - {*those} | {int(place[-1])})
            engines = {*those, newest} - set(gone(training))
            while len(engines) < 3:
                newest += 1
                engines.add(newest)
            training.settle(engines)
        end = training.finish()
    assert_unharmed(training, end, longer_digest, epochs=2 * EPOCHS)


def test_the_first_engine_dies_before_it_has_the_weights(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    """The driver gives them to another."""
    with attempt(*CONV, environ=crashing(tmp_path, "engine.join")) as training:
        training.hold([1, 2])
        end = training.finish()
        assert crashed(training)
    assert_unharmed(training, end, digest)


# ── driver, coordinator, supervisor ───────────────────────────────────────────────────────────────────────────
@cases("place", ["begin", "sent-state", "metrics", Both("received-state")])
def test_the_driver_dies_and_another_takes_its_place(attempt: Attempt, tmp_path: Path, digest: str, place: str) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, f"driver.{place}")) as training:
        training.settle([1, 2])
        end = training.finish()
        assert crashed(training)
        assert [body["what"] for body in training.kinds(ReportKind.RESTARTED)] == ["driver"]
        assert losses(training) == []
        assert (training.log_dir / "driver.out").read_text().count("the code behind train() runs once") == 1
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize("place", ["take", "hand-over"])
def test_driver_and_first_engine_die_while_they_exchange_weights(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    """Each waits for the other, and neither will come."""
    entries = {
        "take": ("driver.received-state", "engine.hand-over#1"),
        "hand-over": ("engine.hand-over", "driver.received-state"),
    }[place]
    with attempt(*CONV, environ=crashing(tmp_path, *entries)) as training:
        training.settle([1])
        training.settle([1, 2, 3])
        end = training.finish()
        assert crashed(training)
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize(
    ("place", "armed"),
    [
        ("start", True),
        ("prepare", False),
        ("commit", False),
        ("settle", False),  # one has left
        ("settle", True),  # a joining engine has the weights, and nobody has been told
    ],
)
def test_the_coordinator_dies_in_a_planned_change(
    attempt: Attempt, tmp_path: Path, digest: str, place: str, armed: bool
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, f"coordinator.{place}", armed=armed)) as training:
        training.settle([1, 2])
        if not armed:
            arm(training)
        training.settle([2, 3])
        end = training.finish()
        assert crashed(training)
        assert [body["what"] for body in training.kinds(ReportKind.RESTARTED)] == ["coordinator"]
        assert losses(training) == []
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize("place", ["regroup", "regrouped"])
def test_the_coordinator_dies_while_survivors_find_together(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    entries = ("engine.in-reduce@22#2", f"coordinator.{place}")
    with attempt(*CONV, environ=crashing(tmp_path, *entries)) as training:
        training.settle([1, 2, 3])
        end = training.finish()
        assert crashed(training)
        assert [loss.engines for loss in losses(training)] == [(2,)]
    assert_unharmed(training, end, digest)


def test_a_supervisor_that_dies_before_it_has_written_anything_is_the_next_attempts(
    attempt: Attempt, tmp_path: Path, digest: str
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, "supervisor.start")) as training:
        assert training.supervisor.process.wait(60) is not None
        assert crashed(training)
        assert training.supervisor.poll() == []
    with attempt(*CONV, fence=2) as training:
        training.settle([1, 2])
        end = training.finish()
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize("place", ["fork", "reap", "end"])
def test_the_supervisor_dies_and_everything_of_it_with_it(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, f"supervisor.{place}", armed=place == "end")) as training:
        training.settle([1, 2])
        pids = [crashes.pid_of(training, engine) for engine in (1, 2)]
        if place != "end":
            arm(training)
        if place == "fork":
            training.hold([1, 2, 3])
        if place == "reap":
            crashes.kill(training, [2], signal.SIGKILL)
        training.gate.open()
        assert training.supervisor.process.wait(60) is not None
        assert crashed(training)
        training.gate.until(lambda: all(processes.start_time(pid) is None for pid in pids))
    with attempt(*CONV, fence=2) as training:
        training.hold([4, 5])
        end = training.finish()
    assert_unharmed(training, end, digest)


def test_a_driver_that_dies_with_the_trained_weights_in_its_hands_is_the_next_attempts(
    attempt: Attempt, tmp_path: Path, digest: str
) -> None:
    """All engines are gone by then; the code behind train() has not run."""
    with attempt(*CONV, environ=crashing(tmp_path, "driver.released")) as training:
        training.settle([1, 2])
        assert training.finish()["kind"] == "lost"
    with attempt(*CONV, fence=2) as training:
        training.hold([3])
        end = training.finish()
        assert "Resuming from step 45 of 45" in (training.log_dir / "driver.err").read_text()
    assert_unharmed(training, end, digest)


# ── nobody is left ────────────────────────────────────────────────────────────────────────────────────────────
@with_pytorch_first
def test_all_engines_at_once_cost_what_came_after_the_last_recovery_checkpoint(attempt: Attempt, digest: str) -> None:
    with attempt(*CONV, "--recovery", 0.001) as training:
        training.settle([1, 2, 3])
        for _ in range(2):  # each step begins one, unless another is under way
            known = len(training.kinds(ReportKind.CHECKPOINTED))
            training.gate.allow(training.gate.allowed + 1)
            until(lambda known=known: len(training.kinds(ReportKind.CHECKPOINTED)) > known, 60)
        crashes.kill(training, [1, 2, 3], signal.SIGKILL)
        end = training.finish()
        assert end["kind"] == "lost" and end["whole"]
        newest = crashes.newest_checkpoint(training)  # which it may not have come to report
    with attempt(*CONV, "--recovery", 0.001, fence=2) as training:
        training.settle([4, 5])
        end = training.finish()
        assert f"Resuming from step {newest} of 45" in (training.log_dir / "driver.err").read_text()
    assert_unharmed(training, end, digest)


@pytest.mark.parametrize("place", ["engine.forward@0", "engine.applied@0"])
def test_the_first_tick_of_the_only_engine_is_done_again_by_the_next_attempt(
    attempt: Attempt, tmp_path: Path, digest: str, place: str
) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, place)) as training:
        training.hold([1])
        assert training.finish()["kind"] == "lost"
    with attempt(*CONV, fence=2) as training:
        training.settle([2, 3])
        end = training.finish()
    assert_unharmed(training, end, digest)


def test_the_last_engine_to_leave_dies_over_its_checkpoint(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    with attempt(*CONV, environ=crashing(tmp_path, "engine.checkpoint", armed=False)) as training:
        training.settle([1, 2])
        arm(training)
        training.hold([])
        training.gate.until(training.over, sparing=True)
        assert crashed(training)
        assert training.kinds(ReportKind.ATTEMPT_ENDED)[-1]["kind"] == "left"  # it was asked to, and it is gone
    with attempt(*CONV, fence=2) as training:
        training.hold([3])
        end = training.finish()
    assert_unharmed(training, end, digest)


# ── engines that do not die by themselves ─────────────────────────────────────────────────────────────────────
@with_pytorch_first
def test_a_stopped_engine_is_killed_at_once(attempt: Attempt, digest: str) -> None:
    with attempt(*CONV) as training:
        training.settle([1, 2, 3])
        crashes.kill(training, [2], signal.SIGSTOP)
        training.gate.until(lambda: 2 in gone(training))
        end = training.finish()
        assert training.kinds(ReportKind.ENGINE_GONE)[0]["message"] == "was stopped"
    assert_unharmed(training, end, digest)


def test_a_hung_micro_batch_costs_its_engine(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    main = crashes.troubled(tmp_path, 'if engine == "2" and offset == 22 and once("hung"): time.sleep(600)')
    with attempt(main, *CONV[1:], environ={"EDT_HANG_SECONDS": "2"}) as training:
        training.settle([1, 2])
        end = training.finish()
        lost = training.kinds(ReportKind.ENGINE_GONE)[0]
        assert lost["allocation"] == 2 and "hung for" in lost["message"]
    assert_unharmed(training, end, digest)


@with_pytorch_first
def test_a_loader_process_that_is_killed_costs_its_engine(attempt: Attempt, digest: str) -> None:
    with attempt(*CONV, "--loaders", 1) as training:
        training.settle([1, 2])
        training.gate.close()
        loaders = processes.descendants(crashes.pid_of(training, 2))
        assert loaders
        os.kill(loaders[0], signal.SIGKILL)
        end = training.finish()
        assert gone(training)[2] == "lost"
    assert_unharmed(training, end, digest)


# ── exceptions, and samples that kill ─────────────────────────────────────────────────────────────────────────
def test_an_exception_in_one_engine_only_costs_that_engine(attempt: Attempt, tmp_path: Path, digest: str) -> None:
    main = crashes.troubled(tmp_path, 'if engine == "2" and offset == 22: raise RuntimeError("this GPU has a bad day")')
    with attempt(main, *CONV[1:]) as training:
        training.settle([1, 2, 3])
        end = training.finish()
        lost = training.kinds(ReportKind.ENGINE_GONE)[0]
        assert (lost["allocation"], lost["kind"]) == (2, "script-error")
        assert lost["message"] == "RuntimeError: this GPU has a bad day"
    assert_unharmed(training, end, digest)


def test_an_exception_that_ends_two_engines_is_the_scripts(attempt: Attempt) -> None:
    with attempt(*CONV, environ={"EDT_FAULT": "raise:19"}) as training:
        training.settle([1, 2, 3])
        end = training.finish()
        shown = (training.log_dir / "driver.err").read_text()
    assert (end["kind"], end["failed_step"]) == ("script-error", 19)
    raised = "RuntimeError: EDT_FAULT: raised at step 19, as EDT_FAULT says; the micro-batch of samples "
    assert end["message"].startswith(raised)
    assert "ended 2 engines" in end["message"]
    assert shown.count("Traceback") == 1


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGSEGV)", "os._exit(0)"])
def test_a_micro_batch_that_ends_two_engines_is_named(attempt: Attempt, tmp_path: Path, how: str) -> None:
    main = crashes.troubled(tmp_path, f"if offset == 22 and worker == 1: {how}")
    with attempt(main, *CONV[1:]) as training:
        training.settle([1, 2, 3])
        end = training.finish()
    assert (end["kind"], end["failed_step"]) == ("script-error", 19)
    assert "the micro-batch of samples" in end["message"] and "(epoch 2, step 19) ended 2 engines" in end["message"]


def test_a_sample_that_kills_whoever_loads_it_is_named(attempt: Attempt, tmp_path: Path) -> None:
    trouble = "if index == 100 and context.page.offset > 20: os.kill(os.getpid(), signal.SIGSEGV)"
    main = crashes.ill(tmp_path, trouble)
    with attempt(main, *CONV[1:]) as training:
        training.settle([1, 2, 3])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "100" in end["message"].partition("of samples ")[2].partition("(")[0].replace(",", " ").split()


# ── kills from outside ────────────────────────────────────────────────────────────────────────────────────────
SHARED = (*CONV, "--workers", 6)
"""Work for six engines."""


def test_five_kills_from_outside_in_one_micro_batch_do_not_end_the_training(
    attempt: Attempt, undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    """A micro-batch may take long, and machines may be reclaimed one after the other."""
    long, inside = tmp_path / "long", tmp_path / "inside"
    main = crashes.troubled(
        tmp_path,
        f"""
        while worker == 2 and os.path.exists({str(long)!r}):
            with open({str(tmp_path / "draft")!r} + "-" + engine, "w") as draft:
                draft.write(f"{{offset}} {{worker}}")
            os.replace(draft.name, {str(inside)!r} + "-" + engine)
            time.sleep(0.01)
        """,
    )
    with attempt(main, *SHARED[1:]) as training:
        training.settle([1])
        training.settle(range(1, 7))
        long.touch()
        training.gate.open()
        ended: dict[int, str] = {}
        for number in range(1, 6):
            until(lambda number=number: len(list(tmp_path.glob("inside-*"))) == number, 60)
            (victim,) = {int(path.name.partition("-")[2]) for path in tmp_path.glob("inside-*")} - set(ended)
            ended[victim] = (tmp_path / f"inside-{victim}").read_text()
            crashes.kill(training, [victim], signal.SIGKILL)
            until(lambda: set(gone(training)) == set(ended), 60)
        long.unlink()
        end = training.finish()
        assert len(set(ended.values())) == 1, ended
        assert set(gone(training).values()) == {"lost", "finished"}
    assert_unharmed(training, end, undisturbed(*SHARED))


def test_a_driver_that_is_asked_to_end_from_outside_is_started_again(attempt: Attempt, digest: str) -> None:
    """As when a machine is shut down: every process is sent SIGTERM, and the supervisor is not the first to act."""
    with attempt(*CONV) as training:
        training.settle([1, 2])
        driver = crashes.driver_of(training)
        os.kill(driver, signal.SIGTERM)
        training.gate.until(lambda: training.happened(ReportKind.RESTARTED), sparing=True)
        end = training.finish()
        (report,) = training.kinds(ReportKind.RESTARTED)
        assert (report["what"], report["why"]) == ("driver", "signal 15")
        told = (training.log_dir / "training.log").read_text()
        assert told.count("started: ") == 1 and "the driver was started again; the training went on" in told
        steps = [int(step) for step in re.findall(r"epoch \d+/\d+ · step (\d+)/", told)]
        assert steps == sorted(set(steps)), "no line is repeated"
    assert_unharmed(training, end, digest)


# ── the counting model ────────────────────────────────────────────────────────────────────────────────────────
@cases("places", [Both(("engine.applied#2", "engine.in-reduce#3")), Later(("engine.reduced#1", "engine.regroup#3"))])
def test_every_sample_moves_its_own_weight_exactly_once_an_epoch(
    attempt: Attempt, tmp_path: Path, places: tuple[str, ...]
) -> None:
    """64 samples, 8 a step: each adds an eighth to its weight, which no rounding can hide."""
    arguments = ("counting", "--samples", 64, "--epochs", 8)
    with attempt(*arguments, environ=crashing(tmp_path, *places, armed=False)) as training:
        training.settle([1, 2, 3, 4])
        arm(training)
        end = training.finish()
        assert crashed(training)
        assert end["kind"] == "finished"
    crashes.assert_all_counted_once(training, 64, 8)
    assert [8 * weight for weight in counted(training)] == [8.0] * 64
