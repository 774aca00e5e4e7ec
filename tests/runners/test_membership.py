"""Generations: one change at a time, switched by all or by none, taken back while that is possible."""

from __future__ import annotations

import pytest

from edt_runner.coordinator.changes import BUILD_SECONDS, RETRY_SECONDS
from edt_runner.coordinator.lifecycle import SUCCESSOR_SECONDS
from edt_runner.coordinator.members import Phase
from edt_runner.protocol.data import EngineResult
from edt_runner.protocol.engine_messages import (
    CancelGeneration,
    CommitGeneration,
    ExitEngine,
    JoinCancelled,
    JoinContinues,
    JoinRequest,
    PullFailed,
    ReceiveStateFromDriver,
    ReceiveStateFromMembers,
    RetractGeneration,
    SendStateToDriver,
)
from edt_runner.protocol.messages import (
    DiscardEngine,
    DriverReleased,
    Note,
    ReceiveStateFromEngine,
    ScriptFailed,
    SendStateToEngine,
    TrainedStateReceived,
    TrainingReport,
    TrainingSuspended,
)
from support.talk import NEW, Talk


def test_the_first_engine_gets_the_weights_from_the_driver() -> None:
    talk = Talk()
    talk.come("1")
    assert talk.coordinator.members.phase is Phase.WAITING
    talk.begin()
    assert talk.coordinator.members.phase is Phase.STARTING
    sends = {send.to: send.message for send in talk.coordinator.members.take_sends()}
    generation = talk.coordinator.members.current.number
    key = f"start/{generation}"
    assert sends["driver"] == SendStateToEngine(key) and sends["1"] == ReceiveStateFromDriver(key, generation)
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 0, 0)
    assert talk.coordinator.members.phase is Phase.RUNNING


def test_joining_engines_join_together_and_never_more_than_there_is_work_for() -> None:
    talk = Talk(micro_batches=3).start("1")
    talk.come("2")
    talk.come("3", "4", "5")
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("1", "2")
    talk.switch()
    assert talk.coordinator.change.new.members == ("1", "2", "3")
    talk.switch()
    assert talk.coordinator.change is None and talk.coordinator.members.current.members == ("1", "2", "3")


def test_nothing_is_committed_before_everybody_has_built() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.coordinator.change.new.number
    talk.built("1", number)
    talk.built("3", number)
    assert CommitGeneration not in talk.kinds("1")
    talk.built("2", number)
    assert talk.kinds("1") == [CommitGeneration]


def test_a_joining_engine_hears_of_the_switch_from_the_first_who_switches() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.sent()
    talk.switching("2", number, 7)
    assert talk.sent("3") == [ReceiveStateFromMembers(number)]
    talk.switching("1", number, 7)
    assert talk.kinds("3") == []


def test_a_leaving_engine_may_go_only_when_all_others_have_switched() -> None:
    talk = Talk().start("1", "2")
    talk.coordinator.leave(["1"], 0)
    number = talk.build()
    talk.switching("1", number, 7)
    assert ExitEngine not in talk.kinds("1")
    talk.switching("2", number, 7)
    assert talk.kinds("1") == [ExitEngine]


def test_a_generation_that_is_not_built_in_time_is_cancelled_and_tried_again() -> None:
    talk = Talk().start("1")
    talk.come("2")
    first = talk.coordinator.change.new.number
    talk.coordinator.check_deadlines(BUILD_SECONDS + 1)
    assert talk.coordinator.change is None
    assert CancelGeneration(first) in talk.sent("1")
    talk.coordinator.check_deadlines(BUILD_SECONDS + 2 + RETRY_SECONDS)
    assert talk.coordinator.change.new.number > first


def test_one_promise_is_enough_to_take_a_committed_generation_back() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.coordinator.from_engine("3", PullFailed(), 0)
    assert talk.kinds("1")[-1] is RetractGeneration
    talk.coordinator.retract_answer("1", number, False, 0)
    talk.sent()
    talk.coordinator.retract_answer("2", number, True, 0)
    assert talk.coordinator.change is None
    assert talk.sent("3") == [
        CancelGeneration(number),
        JoinCancelled(),
    ]


def test_a_generation_that_all_have_announced_cannot_be_taken_back() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.coordinator.from_engine("3", PullFailed(), 0)
    talk.coordinator.retract_answer("1", number, False, 0)
    talk.coordinator.retract_answer("2", number, False, 0)
    assert talk.sent("3")[-1] == JoinContinues()
    assert talk.coordinator.change is not None


def test_engines_that_are_asked_to_leave_together_leave_at_one_switch() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.leave(["1", "3"], 0)
    assert talk.coordinator.change.new.members == ("2",)


def test_the_last_engine_suspends_the_training() -> None:
    talk = Talk().start("1")
    talk.coordinator.leave(["1"], 0)
    assert talk.coordinator.change.new.members == ()
    talk.switch()
    assert talk.coordinator.members.phase is Phase.SUSPENDED
    kinds = [type(send.message) for send in talk.coordinator.members.take_sends() if send.to == "supervisors"]
    assert kinds == [TrainingSuspended]


def test_the_last_engine_waits_for_one_that_is_on_its_way() -> None:
    talk = Talk().start("1")
    talk.expect("2")
    talk.coordinator.leave(["1"], 0)
    assert talk.coordinator.change is None
    talk.come("2")
    assert talk.coordinator.change.new.members == ("1", "2")  # first it comes, then the other goes
    talk.switch()
    assert talk.coordinator.change.new.members == ("2",)


def test_the_last_engine_does_not_wait_beyond_its_grace_for_one_that_does_not_come() -> None:
    talk = Talk().start("1")
    talk.expect("2")
    talk.coordinator.leave(["1"], 0)
    talk.coordinator.check_deadlines(SUCCESSOR_SECONDS - 1)
    assert talk.coordinator.change is None
    talk.coordinator.check_deadlines(SUCCESSOR_SECONDS + 1)
    assert talk.coordinator.change.new.members == ()  # a checkpoint, and the next attempt goes on


def test_an_engine_that_never_joined_is_let_go_at_once() -> None:
    talk = Talk().start("1")
    talk.expect("2")
    talk.coordinator.leave(["2"], 0)
    assert talk.sent("supervisors") == [DiscardEngine("2")]


def test_a_joining_engine_that_dies_before_the_commit_costs_nothing() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.coordinator.engine_gone("3", 0)
    assert talk.coordinator.change is None and not talk.coordinator.regrouping


def test_an_exception_before_train_waits_for_a_driver_that_reaches_it() -> None:
    talk = Talk()
    talk.coordinator.engine_raised("1", "ValueError: no", "Traceback …")
    assert talk.sent("driver") == []
    talk.begin()
    assert talk.kinds("driver") == [ScriptFailed]


def test_the_weights_go_to_the_driver_when_all_have_finished_and_slots_before_train_returns() -> None:
    talk = Talk().start("1", "2")
    talk.finished("1")
    assert talk.sent("driver") == []
    talk.finished("2", EngineResult())
    assert talk.kinds("driver") == [ReceiveStateFromEngine]
    talk.coordinator.from_driver(TrainedStateReceived(), 0)
    assert talk.sent("driver") == []
    talk.coordinator.engine_gone("1", 0)
    talk.coordinator.engine_gone("2", 0)
    assert talk.kinds("driver") == [DriverReleased]


def test_a_change_under_way_at_the_end_is_dropped() -> None:
    talk = Talk().start("1")
    talk.come("2")
    talk.build()
    talk.finished("1")
    assert talk.coordinator.members.phase is Phase.ENDING and talk.coordinator.change is None
    assert ExitEngine in talk.kinds("2")


@pytest.mark.parametrize("count", [8, None])
def test_a_first_engine_with_other_data_is_refused_by_name(count: int | None) -> None:
    talk = Talk()
    talk.begin()
    talk.sent()
    talk.expect("1")
    talk.coordinator.engine_connected("1", NEW, 0)
    talk.coordinator.join_request("1", JoinRequest({"training samples": count}, 0), 0)
    assert "training samples: 9 in the driver" in talk.only("driver", ScriptFailed).message


def test_a_joining_engines_own_trouble_is_not_the_trainings() -> None:
    talk = Talk().start("1")
    talk.expect("2")
    talk.coordinator.engine_raised("2", "RuntimeError: CUDA out of memory", "Traceback …")
    assert talk.coordinator.members.phase is Phase.RUNNING
    sends = talk.coordinator.members.take_sends()
    assert [type(send.message) for send in sends if send.to == "driver"] == [Note]
    assert [type(send.message) for send in sends if send.to == "supervisors"] == [DiscardEngine]


def test_a_joining_engine_that_shall_leave_is_let_go_when_its_change_is_cancelled() -> None:
    talk = Talk().start("1")
    talk.come("2")
    talk.coordinator.leave(["2"], 0)
    talk.sent()
    talk.coordinator.check_deadlines(BUILD_SECONDS + 1)
    assert DiscardEngine("2") in talk.sent("supervisors")
    assert talk.coordinator.change is None


def test_an_engine_that_is_still_starting_at_the_end_does_not_hold_the_end_up() -> None:
    talk = Talk().start("1")
    talk.expect("2")
    talk.finished("1")
    assert DiscardEngine("2") in talk.sent("supervisors")


def test_nobody_is_planned_for_any_more_when_an_engine_has_committed_the_last_step() -> None:
    """Nobody comes to another switch: whoever shall leave goes with the others, and the training ends."""
    talk = Talk().start("1", "2")
    talk.coordinator.leave(["2"], 0)
    talk.finished("1")
    assert talk.coordinator.change is None and talk.coordinator.members.phase is Phase.ENDING
    talk.finished("2", EngineResult())
    assert SendStateToDriver in talk.kinds("1")


def test_an_end_that_is_heard_before_a_joining_engines_own_word_counts_it_all_the_same() -> None:
    """It came for the last step; lines of two engines are not read in the order in which they were written to."""
    talk = Talk().start("1")
    talk.come("2")
    number = talk.build()
    talk.switching("1", number, 9)
    talk.finished("1", generation=number)
    talk.sent()
    talk.coordinator.state_received("2", number, 9, 0)
    assert talk.only("own supervisor", TrainingReport).report == "engine-joined"
    talk.finished("2", EngineResult())
    assert SendStateToDriver in talk.kinds("1")
