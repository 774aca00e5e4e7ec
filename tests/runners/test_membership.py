"""Generations: one change at a time, switched by all or by none, taken back while that is possible."""

from __future__ import annotations

import pytest

from edt_runner.generations import Phase
from edt_runner.membership import BUILD_SECONDS, RETRY_SECONDS, SUCCESSOR_SECONDS
from support.talk import NEW, Talk


def test_the_first_engine_gets_the_weights_from_the_driver() -> None:
    talk = Talk()
    talk.come("1")
    assert talk.mind.phase is Phase.WAITING
    talk.mind.begin(talk.definition, 0)
    assert talk.mind.phase is Phase.STARTING
    messages = talk.mind.take()
    assert [(send.to, send.message["rank"]) for send in messages if send.message["kind"] == "handover"] == [
        ("driver", 0),
        ("1", 1),
    ]
    talk.mind.received("1", talk.mind.current.number, 0, 0)
    assert talk.mind.phase is Phase.RUNNING


def test_newcomers_join_together_and_never_more_than_there_is_work_for() -> None:
    talk = Talk(workers=3).start("1")
    talk.come("2")
    talk.come("3", "4", "5")
    assert talk.mind.change and talk.mind.change.new.members == ("1", "2")
    talk.switch()
    assert talk.mind.change.new.members == ("1", "2", "3")
    talk.switch()
    assert talk.mind.change is None and talk.mind.current.members == ("1", "2", "3")


def test_nothing_is_committed_before_everybody_has_built() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.mind.change.new.number
    talk.mind.built("1", number, 0)
    talk.mind.built("3", number, 0)
    assert "commit" not in talk.kinds("1")
    talk.mind.built("2", number, 0)
    assert talk.kinds("1") == ["commit"]


def test_a_newcomer_hears_of_the_switch_from_the_first_who_switches() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.said()
    talk.mind.switching("2", number, 7, 0)
    assert talk.said("3") == [{"kind": "switched", "generation": number, "tick": 7}]
    talk.mind.switching("1", number, 7, 0)
    assert talk.kinds("3") == []


def test_a_leaver_may_go_only_when_all_others_have_switched() -> None:
    talk = Talk().start("1", "2")
    talk.mind.leave(["1"], 0)
    number = talk.build()
    talk.mind.switching("1", number, 7, 0)
    assert "exit" not in talk.kinds("1")
    talk.mind.switching("2", number, 7, 0)
    assert talk.kinds("1") == ["exit"]


def test_a_generation_that_is_not_built_in_time_is_cancelled_and_tried_again() -> None:
    talk = Talk().start("1")
    talk.come("2")
    first = talk.mind.change.new.number
    talk.mind.tick(BUILD_SECONDS + 1)
    assert talk.mind.change is None
    assert {"kind": "cancel", "generation": first} in talk.said("1")
    talk.mind.tick(BUILD_SECONDS + 2 + RETRY_SECONDS)
    assert talk.mind.change.new.number > first


def test_one_promise_is_enough_to_take_a_committed_generation_back() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.mind.pull_failed("3", 0)
    assert talk.kinds("1")[-1] == "retract"
    talk.mind.retracted("1", number, False, 0)
    talk.said()
    talk.mind.retracted("2", number, True, 0)
    assert talk.mind.change is None
    assert talk.said("3") == [
        {"kind": "cancel", "generation": number},
        {"kind": "pull-answer", "cancelled": True},
    ]


def test_a_generation_that_all_have_announced_cannot_be_taken_back() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.mind.pull_failed("3", 0)
    talk.mind.retracted("1", number, False, 0)
    talk.mind.retracted("2", number, False, 0)
    assert talk.said("3")[-1] == {"kind": "pull-answer", "cancelled": False}
    assert talk.mind.change is not None


def test_engines_that_are_asked_to_leave_together_leave_at_one_switch() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.leave(["1", "3"], 0)
    assert talk.mind.change.new.members == ("2",)


def test_the_last_engine_suspends_the_training() -> None:
    talk = Talk().start("1")
    talk.mind.leave(["1"], 0)
    assert talk.mind.change.new.members == ()
    talk.switch()
    assert talk.mind.phase is Phase.SUSPENDED
    kinds = [send.message["kind"] for send in talk.mind.take() if send.to == "supervisors"]
    assert kinds == ["suspended"]


def test_the_last_engine_waits_for_one_that_is_on_its_way() -> None:
    talk = Talk().start("1")
    talk.mind.expect("2")
    talk.mind.leave(["1"], 0)
    assert talk.mind.change is None
    talk.come("2")
    assert talk.mind.change.new.members == ("1", "2")  # first it comes, then the other goes
    talk.switch()
    assert talk.mind.change.new.members == ("2",)


def test_the_last_engine_does_not_wait_beyond_its_grace_for_one_that_does_not_come() -> None:
    talk = Talk().start("1")
    talk.mind.expect("2")
    talk.mind.leave(["1"], 0)
    talk.mind.tick(SUCCESSOR_SECONDS - 1)
    assert talk.mind.change is None
    talk.mind.tick(SUCCESSOR_SECONDS + 1)
    assert talk.mind.change.new.members == ()  # a checkpoint, and the next attempt goes on


def test_an_engine_that_never_joined_is_let_go_at_once() -> None:
    talk = Talk().start("1")
    talk.mind.expect("2")
    talk.mind.leave(["2"], 0)
    assert talk.said("supervisors") == [{"kind": "discard", "engine": "2"}]


def test_a_newcomer_that_dies_before_the_commit_costs_nothing() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.mind.gone("3", 0)
    assert talk.mind.change is None and not talk.mind.re_forming


def test_an_exception_before_train_waits_for_a_driver_that_reaches_it() -> None:
    talk = Talk()
    talk.mind.raised("1", "ValueError: no", "Traceback …")
    assert talk.said("driver") == []
    talk.mind.begin(talk.definition, 0)
    assert talk.kinds("driver") == ["failed"]


def test_the_weights_go_to_the_driver_when_all_have_finished_and_slots_before_train_returns() -> None:
    talk = Talk().start("1", "2")
    body = {"digest": "d", "step": 10}
    number = talk.mind.current.number
    talk.mind.finished("1", number, body, 0)
    assert talk.said("driver") == []
    talk.mind.finished("2", number, {}, 0)
    assert talk.kinds("driver") == ["handover"]
    talk.mind.driver_received()
    assert talk.said("driver") == []
    talk.mind.gone("1", 0)
    talk.mind.gone("2", 0)
    assert talk.kinds("driver") == ["released"]


def test_a_change_under_way_at_the_end_is_dropped() -> None:
    talk = Talk().start("1")
    talk.come("2")
    talk.build()
    talk.mind.finished("1", talk.mind.current.number, {"digest": "d", "step": 10}, 0)
    assert talk.mind.phase is Phase.ENDING and talk.mind.change is None
    assert "exit" in talk.kinds("2")


@pytest.mark.parametrize("count", [8, None])
def test_a_first_engine_with_other_data_is_refused_by_name(count: int | None) -> None:
    talk = Talk()
    talk.mind.begin(talk.definition, 0)
    talk.said()
    talk.mind.expect("1")
    talk.mind.connect("1", NEW, 0)
    talk.mind.ready("1", {"training samples": count}, [9001], 0)
    failed = talk.said("driver")
    assert "training samples: 9 in the driver" in failed[0]["message"]


def test_a_newcomers_own_trouble_is_not_the_trainings() -> None:
    talk = Talk().start("1")
    talk.mind.expect("2")
    talk.mind.raised("2", "RuntimeError: CUDA out of memory", "Traceback …")
    assert talk.mind.phase is Phase.RUNNING
    said = talk.mind.take()
    assert [send.message["kind"] for send in said if send.to == "driver"] == ["note"]
    assert [send.message["kind"] for send in said if send.to == "supervisors"] == ["discard"]


def test_a_newcomer_that_shall_leave_is_let_go_when_its_change_is_cancelled() -> None:
    talk = Talk().start("1")
    talk.come("2")
    talk.mind.leave(["2"], 0)
    talk.said()
    talk.mind.tick(BUILD_SECONDS + 1)
    assert {"kind": "discard", "engine": "2"} in talk.said("supervisors")
    assert talk.mind.change is None


def test_an_engine_that_is_still_starting_at_the_end_does_not_hold_the_end_up() -> None:
    talk = Talk().start("1")
    talk.mind.expect("2")
    talk.mind.finished("1", talk.mind.current.number, {"digest": "d", "step": 10}, 0)
    assert {"kind": "discard", "engine": "2"} in talk.said("supervisors")


def test_nobody_is_planned_for_any_more_when_an_engine_has_committed_the_last_step() -> None:
    """Nobody comes to another switch: whoever shall leave goes with the others, and the training ends."""
    talk = Talk().start("1", "2")
    talk.mind.leave(["2"], 0)
    number = talk.mind.current.number
    talk.mind.finished("1", number, {"digest": "x", "step": 10}, 0)
    assert talk.mind.change is None and talk.mind.phase is Phase.ENDING
    talk.mind.finished("2", number, {}, 0)
    assert "handover" in talk.kinds("1")


def test_an_end_that_is_heard_before_a_newcomers_own_word_counts_it_all_the_same() -> None:
    """It came for the last step; lines of two engines are not read in the order in which they were written to."""
    talk = Talk().start("1")
    talk.come("2")
    number = talk.build()
    talk.mind.switching("1", number, 9, 0)
    talk.mind.finished("1", number, {"digest": "x", "step": 10}, 0)
    talk.said()
    talk.mind.received("2", number, 9, 0)
    assert [message["report"] for message in talk.said("leader")] == ["engine-joined"]
    talk.mind.finished("2", number, {}, 0)
    assert "handover" in talk.kinds("1")
