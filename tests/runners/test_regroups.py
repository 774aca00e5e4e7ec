"""After a crash: who is called, who gets what from whom, and that nobody is waited for who is gone."""

from __future__ import annotations

from typing import Any

from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.lifecycle import SETTLE_SECONDS
from edt_runner.coordinator.members import Phase
from edt_runner.coordinator.regroup import VIEWS_SECONDS
from edt_runner.protocol.data import CatchUp, EngineResult, EngineState, EngineStatus, MicroBatch, RegroupStatus
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    EngineConnected,
    GenerationSettled,
    JoinAgain,
    ReceiveStateFromDriver,
    ReplicasChanged,
    SendStateToDriver,
    StartRegroup,
    StateReceived,
    SurvivorStatus,
    TrainingDefined,
)
from edt_runner.protocol.messages import (
    DiscardEngine,
    Message,
    ReceiveStateFromEngine,
    ScriptFailed,
    SendStateToEngine,
    StateLost,
    TrainingReport,
)
from support.talk import NEW, RESULT, Talk, join_request, status


def called(talk: Talk, *names: str) -> list[list[type[Message]]]:
    """What each of them is told to do; news of the replicas disturb nobody."""
    sent = [(send.to, type(send.message)) for send in talk.coordinator.members.take_sends()]
    return [[kind for to, kind in sent if to == name and kind is not ReplicasChanged] for name in names]


def plan_of(talk: Talk, name: str) -> ApplyRegroupPlan:
    """What one of them is told of how they go on."""
    return talk.only(name, ApplyRegroupPlan)


def test_the_survivors_are_woken_and_go_on_without_the_dead() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("2", 0)
    assert called(talk, "1", "2", "3") == [[StartRegroup], [], [StartRegroup]]
    talk.stand("1", 5, spans=[[0, 2]])
    assert talk.sent("1") == []  # not before all have spoken
    talk.stand("3", 5, spans=[[3, 4]])
    plan = plan_of(talk, "3")
    assert (plan.plan.members, plan.lost) == (("1", "3"), ("2",))
    assert plan.plan.split == ((0, 1, 2), (3,)) and plan.plan.recomputed == 1
    talk.coordinator.regrouped("1", 1, 0)
    assert talk.coordinator.regrouping
    talk.coordinator.regrouped("3", 1, 0)
    assert talk.coordinator.members.current.members == ("1", "3") and not talk.coordinator.regrouping


def test_whoever_is_a_step_behind_gets_the_reduced_gradients_from_one_who_applied_it() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("3", 0)
    talk.sent()
    talk.stand("1", 6, holds=True)
    talk.stand("2", 5, spans=[[2, 3]])
    plan = plan_of(talk, "2").plan
    assert (plan.offset, plan.behind, plan.sources, plan.catch_up) == (6, ("2",), ("1",), CatchUp.REDUCED)
    assert plan.recomputed == 4  # of step 6 nobody has anything


def test_whoever_is_behind_gets_the_whole_state_where_nobody_holds_the_reduced_gradients() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("3", 0)
    talk.sent()
    talk.stand("1", 6, holds=False)
    talk.stand("2", 5)
    plan = plan_of(talk, "2").plan
    assert (plan.sources, plan.catch_up) == (("1",), CatchUp.STATE)


def test_hooks_that_end_the_training_in_one_engine_only_are_the_scripts_failure() -> None:
    """Found when the other has waited for long; else both would wait for ever."""
    talk = Talk().start("1", "2")
    talk.finished("1")
    talk.coordinator.engine_stuck("2")
    talk.sent()
    talk.stand("1", 6, ended=True)
    assert talk.coordinator.members.phase is not Phase.FAILED
    talk.stand("2", 6)
    failed = talk.only("driver", ScriptFailed)
    assert "in engine 1 have ended the training, those in engine 2 have not" in failed.message


def test_whoever_is_behind_at_the_end_of_the_training_is_no_failure() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("3", 0)
    talk.sent()
    talk.stand("1", 6, ended=True)
    talk.stand("2", 5)
    assert talk.kinds("2")[0] is ApplyRegroupPlan


def test_who_dies_before_all_have_spoken_is_left_out_of_the_regroup() -> None:
    """The others have often seen its connections break before its supervisor tells that it is gone."""
    talk = Talk().start("1", "2", "3")
    talk.group_lost("1")
    talk.stand("1", 6)
    talk.stand("2", 5, spans=[[0, 2]])
    talk.sent()
    talk.coordinator.engine_gone("3", 0)
    plan = plan_of(talk, "1")
    assert (plan.regroup, plan.plan.members, plan.lost) == (1, ("1", "2"), ("3",))
    for name in ("1", "2"):
        talk.coordinator.regrouped(name, 1, 0)
    assert talk.coordinator.members.current.members == ("1", "2") and not talk.coordinator.regrouping


def test_what_the_dead_had_said_of_itself_is_forgotten_with_it() -> None:
    talk = Talk().start("1", "2", "3")
    talk.group_lost("1")
    talk.stand("3", 6)  # the only one that has applied the step
    talk.coordinator.engine_gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 5)
    plan = plan_of(talk, "1").plan
    assert (plan.offset, plan.behind) == (5, ())


def test_a_regroup_of_which_all_die_before_they_have_spoken_loses_the_attempt() -> None:
    talk = Talk().start("1", "2")
    talk.group_lost("1")
    talk.coordinator.engine_gone("2", 0)
    talk.coordinator.engine_gone("1", 0)
    assert talk.coordinator.members.phase is Phase.FAILED


def test_a_death_in_a_regroup_that_is_decided_begins_the_next_one_and_the_answers_to_the_first_are_stale() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 5)
    talk.sent()
    talk.coordinator.engine_gone("2", 0)
    assert called(talk, "1") == [[StartRegroup]]
    talk.coordinator.survivor_status("1", SurvivorStatus(1, RegroupStatus(5, True), ""))
    assert talk.sent("1") == []
    talk.regroup("1")
    assert talk.coordinator.members.current.members == ("1",)


def test_when_nobody_is_left_who_has_the_weights_the_attempt_is_lost() -> None:
    talk = Talk().start("1", "2")
    talk.coordinator.engine_gone("1", 0)
    talk.sent()
    talk.coordinator.engine_gone("2", 0)
    assert talk.coordinator.members.phase is Phase.FAILED
    assert [type(message) for message in talk.sent("supervisors")] == [StateLost]


def test_trouble_without_a_death_is_a_regroup_of_all() -> None:
    talk = Talk().start("1", "2")
    talk.group_lost("1")
    assert called(talk, "1", "2") == [[StartRegroup], [StartRegroup]]
    talk.group_lost("2")  # of the same breakdown
    assert called(talk, "1", "2") == [[], []]


def test_a_regroup_does_away_with_a_planned_change_and_the_joining_engine_asks_again() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.build()
    talk.sent()
    talk.coordinator.engine_gone("2", 0)
    assert called(talk, "1", "3") == [[CancelGeneration, StartRegroup], [CancelGeneration, JoinAgain]]
    talk.regroup("1")
    assert talk.coordinator.members.current.members == ("1",) and talk.coordinator.change is None
    talk.come("3")
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("1", "3")


def test_a_joining_engine_that_has_the_weights_belongs_to_the_regroup() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.switching("1", number, 5)
    talk.coordinator.state_received("3", number, 5, 0)
    talk.sent()
    talk.coordinator.engine_gone("2", 0)
    assert called(talk, "1", "3")[1] == [CancelGeneration, StartRegroup]
    talk.regroup("1", "3")
    assert talk.coordinator.members.current.members == ("1", "3")


def test_a_leaving_engine_that_the_others_have_not_all_left_behind_comes_back_and_leaves_anew() -> None:
    """It may be the only one that has applied the last step."""
    talk = Talk().start("1", "2", "3")
    talk.coordinator.leave(["1"], 0)
    number = talk.build()
    talk.switching("1", number, 6)
    talk.sent()
    talk.coordinator.engine_gone("3", 0)
    assert called(talk, "1", "2") == [[CancelGeneration, StartRegroup], [CancelGeneration, StartRegroup]]
    talk.regroup("1", "2", offset=6)
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("2",)


def test_two_that_cannot_reach_each_other_do_not_stay_together() -> None:
    talk = Talk().start("1", "2", "3")
    talk.group_lost("1")
    for name in ("1", "2", "3"):
        talk.stand(name, 5)
    talk.sent()
    talk.group_lost("1", 1, ["3"])
    assert talk.coordinator.members.newest_regroup == 1  # the others may see it otherwise
    talk.coordinator.regrouped("2", 1, 0)
    talk.group_lost("3", 1, ["1"])
    assert DiscardEngine("3") in talk.sent("supervisors")
    talk.regroup("1", "2")
    assert talk.coordinator.members.current.members == ("1", "2")


def test_who_gives_to_one_behind_that_another_cannot_reach_speaks_first_and_all_are_heard() -> None:
    """1 reaches both and has built the group; 2 and 3 give up, which ends what 1 gives, and look whom they reach."""
    talk = Talk().start("1", "2", "3")
    talk.group_lost("1")
    for name, offset in (("1", 6), ("2", 6), ("3", 5)):
        talk.stand(name, offset)
    talk.sent()
    talk.group_lost("1", 1, built=True)
    talk.group_lost("2", 1, ["3"], 1)
    assert talk.coordinator.members.newest_regroup == 1
    talk.group_lost("3", 1, ["2"], 1)
    assert DiscardEngine("3") in talk.sent("supervisors")
    talk.regroup("1", "2", offset=6)
    assert talk.coordinator.members.current.members == ("1", "2")


def test_a_view_that_is_never_told_is_not_waited_for_for_ever() -> None:
    talk = Talk().start("1", "2", "3")
    talk.group_lost("1")
    for name in ("1", "2", "3"):
        talk.stand(name, 5)
    talk.group_lost("2", 1, ["3"], 1)
    talk.coordinator.regrouped("1", 1, 1)
    talk.coordinator.check_deadlines(1 + VIEWS_SECONDS)
    assert talk.coordinator.members.newest_regroup == 1
    talk.sent()
    talk.coordinator.check_deadlines(1.1 + VIEWS_SECONDS)
    assert DiscardEngine("3") in talk.sent("supervisors")
    assert talk.coordinator.members.newest_regroup == 2


def test_a_micro_batch_that_ends_two_engines_is_the_scripts_and_named() -> None:
    talk = Talk().start("1", "2", "3")
    talk.coordinator.engine_gone("3", 0, MicroBatch(5, 2), "signal 11")
    talk.regroup("1", "2")
    talk.sent()
    talk.coordinator.engine_gone("2", 0, MicroBatch(5, 2), "signal 11")
    failed = talk.only("driver", ScriptFailed)
    assert failed.failed_step == 5
    assert "samples" in failed.message and "ended 2 engines (signal 11 and signal 11)" in failed.message


def test_an_exception_in_one_engine_is_not_yet_the_scripts() -> None:
    talk = Talk().start("1", "2")
    talk.coordinator.engine_raised("2", "RuntimeError: CUDA error", "Traceback …")
    talk.coordinator.engine_gone("2", 0, MicroBatch(5, 2), "RuntimeError: CUDA error")
    assert talk.sent("driver") == []
    talk.regroup("1")
    assert talk.coordinator.members.current.members == ("1",)


def test_an_exception_in_the_last_engine_is_told_with_its_traceback() -> None:
    talk = Talk().start("1")
    talk.coordinator.engine_raised("1", "ValueError: no", "Traceback …")
    talk.coordinator.engine_gone("1", 0, MicroBatch(5, 2), "ValueError: no")
    failed = talk.only("driver", ScriptFailed)
    assert (failed.message, failed.traceback) == ("ValueError: no", "Traceback …")


def test_an_engine_that_dies_at_the_end_is_not_missed_and_another_gives_the_weights() -> None:
    talk = Talk().start("1", "2")
    for name, result in (("1", RESULT), ("2", EngineResult())):
        talk.finished(name, result)
    talk.sent()
    talk.coordinator.engine_gone("1", 0)
    talk.regroup("2", offset=10)
    assert talk.coordinator.members.phase is Phase.RUNNING
    talk.sent()
    talk.finished("2")
    assert talk.kinds("driver") == [ReceiveStateFromEngine]


def test_a_driver_that_is_started_again_gets_the_weights_at_the_end() -> None:
    talk = Talk().start("1")
    talk.coordinator.driver_disconnected()
    talk.finished("1")
    assert talk.kinds("driver") == []
    talk.begin()
    assert talk.kinds("driver") == [ReceiveStateFromEngine]


def test_a_driver_that_comes_to_another_training_is_refused() -> None:
    talk = Talk().start("1")
    talk.coordinator.driver_disconnected()
    talk.begin(seed=8)
    assert "seed was 7 and is 8" in talk.only("driver", ScriptFailed).message


def test_the_first_weights_are_given_again_when_driver_or_engine_die_over_it() -> None:
    talk = Talk()
    talk.begin()
    talk.come("1")
    assert talk.coordinator.members.phase is Phase.STARTING
    talk.come("2")
    talk.sent()
    talk.coordinator.engine_gone("1", 0)
    transfer = (SendStateToEngine, ReceiveStateFromDriver)
    assert [send.to for send in talk.coordinator.members.take_sends() if isinstance(send.message, transfer)] == [
        "driver",
        "2",
    ]
    talk.coordinator.driver_disconnected()
    talk.begin()
    assert JoinAgain in talk.kinds("2")
    talk.come("2")
    assert talk.kinds("2")[-1] is ReceiveStateFromDriver


def test_the_first_weights_stay_given_though_the_driver_was_seen_to_die_before_the_engine_said_so() -> None:
    talk = Talk()
    talk.begin()
    talk.come("1")
    talk.sent()
    talk.coordinator.driver_disconnected()
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 0, 0)
    talk.begin()
    assert talk.coordinator.members.phase is Phase.RUNNING
    assert called(talk, "1") == [[GenerationSettled, TrainingDefined]]


# ── a coordinator that is not the first ───────────────────────────────────────────────────────────────────────────


def successor(*names: str) -> Talk:
    talk = Talk()
    talk.coordinator = Coordinator(recovering=True)
    for name in names:
        talk.expect(name)
    return talk


def test_a_new_coordinator_watches_on_where_all_train_in_one_generation() -> None:
    talk = successor("1", "2")
    talk.coordinator.engine_connected("1", status(7, "1", "2"), 0)
    assert talk.coordinator.members.phase is Phase.RECOVERING
    talk.coordinator.engine_connected("2", status(7, "1", "2"), 0)
    assert talk.coordinator.members.phase is Phase.RUNNING and talk.coordinator.members.current.members == ("1", "2")
    assert called(talk, "1", "2") == [[], []]  # nobody was disturbed
    talk.begin()
    talk.come("3")
    assert talk.coordinator.change and talk.coordinator.change.new.number > 1000


def test_a_new_coordinator_tells_who_has_joined_where_the_one_before_may_not_have_come_to_it() -> None:
    talk = successor("1", "2")
    talk.coordinator.engine_connected("1", status(7, "1", "2", settled=6), 0)
    talk.coordinator.engine_connected("2", status(7, "1", "2", step=5), 0)
    report = talk.only("own supervisor", TrainingReport)
    assert (report.report, report.body) == ("engine-joined", {"allocation": 2, "generation": 7, "step": 5})


def test_a_new_coordinator_calls_a_regroup_where_something_was_half_done() -> None:
    for half in (
        status(8, "1", "2", "3"),
        status(7, "1", "2", announced=8),
        status(7, "1", "2", state=EngineState.REGROUPING),
        status(7, "1", "2", state=EngineState.SWITCHED_OUT, next_generation=8),
    ):
        talk = successor("1", "2")
        talk.coordinator.engine_connected("1", status(7, "1", "2"), 0)
        talk.coordinator.engine_connected("2", half, 0)
        talk.coordinator.check_deadlines(SETTLE_SECONDS + 1)
        assert called(talk, "1", "2") == [[StartRegroup], [StartRegroup]], half


def test_a_new_coordinator_does_not_wait_for_an_engine_that_is_known_to_be_gone() -> None:
    talk = successor("1")
    talk.coordinator.engine_gone("2", 0)
    talk.coordinator.engine_connected("1", status(7, "1", "2"), 0)
    assert called(talk, "1") == [[StartRegroup]]
    talk.regroup("1")
    assert talk.coordinator.members.current.members == ("1",)


def test_a_new_coordinator_lets_those_ask_again_who_have_nothing() -> None:
    talk = successor("1", "2")
    talk.coordinator.engine_connected("2", NEW, 0)
    talk.coordinator.engine_connected("1", status(7, "1"), 0)
    assert called(talk, "2") == [[JoinAgain]]


def test_an_engine_that_had_asked_before_it_was_told_to_ask_anew_is_let_in_once() -> None:
    talk = successor("1", "2")
    talk.coordinator.engine_connected("2", NEW, 0)
    talk.coordinator.engine_connected("1", status(7, "1"), 0)
    talk.begin()
    talk.coordinator.join_request("2", join_request(0), 0)  # was on its way
    assert talk.coordinator.change is None
    talk.coordinator.join_request("2", join_request(talk.coordinator.members.newest_regroup), 0)
    first = talk.coordinator.change
    talk.coordinator.join_request("2", join_request(talk.coordinator.members.newest_regroup), 0)
    assert first is not None and talk.coordinator.change is first


def test_without_any_engine_that_has_the_weights_a_new_coordinator_gives_up() -> None:
    talk = successor()
    talk.coordinator.check_deadlines(SETTLE_SECONDS + 100)
    assert [type(message) for message in talk.sent("supervisors")] == [StateLost]


def test_what_is_said_to_a_coordinator_that_does_not_know_yet_who_trains_is_not_lost() -> None:
    for news in ("finished", "trouble"):
        talk = successor("1", "2", "3")  # engine 3 is still running its script up to train()
        talk.begin()
        for name in "12":
            talk.coordinator.engine_connected(name, status(7, "1", "2"), 0)
        for name in "12":
            if news == "finished":
                talk.finished(name, generation=7)
            else:
                talk.group_lost(name, 3, [], 1, generation=7)
        talk.sent()
        talk.coordinator.check_deadlines(SETTLE_SECONDS + 1)
        assert called(talk, "1") == [[SendStateToDriver] if news == "finished" else [StartRegroup]]


# ── a line that breaks while both its ends live ───────────────────────────────────────────────────────────────────


def back(talk: Talk, name: str, generation: int, *members: str, **more: Any) -> None:
    talk.coordinator.engine_disconnected(name)
    talk.coordinator.engine_connected(
        name, status(generation, *members, **{"regroup": talk.coordinator.members.newest_regroup, **more}), 0
    )


def test_an_answer_that_was_lost_with_its_line_is_asked_for_in_a_new_regroup() -> None:
    for stood in ((), ("1",), ("1", "2")):
        talk = Talk().start("1", "2", "3")
        talk.coordinator.engine_gone("3", 0)
        for name in stood:
            talk.stand(name, 5)
        first = talk.coordinator.members.newest_regroup
        back(talk, "2", 1, "1", "2", "3", state=EngineState.REGROUPING)
        talk.sent()
        assert talk.coordinator.members.newest_regroup > first
        talk.regroup("1", "2")
        assert talk.coordinator.members.current.members == ("1", "2")


def test_an_end_that_was_lost_with_its_line_is_told_again() -> None:
    talk = Talk().start("1", "2")
    number = talk.coordinator.members.current.number
    talk.finished("1")
    talk.sent()
    back(talk, "2", number, "1", "2", state=EngineState.ENDED, result=EngineResult())
    assert called(talk, "1", "2") == [[StartRegroup], [TrainingDefined, StartRegroup]]
    talk.regroup("1", "2", offset=10)
    for name, result in (("1", RESULT), ("2", EngineResult())):
        talk.finished(name, result)
    assert talk.kinds("driver") == [ReceiveStateFromEngine]


def test_a_joining_engine_that_was_off_the_line_is_told_again_to_ask_anew() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.build()
    talk.coordinator.engine_disconnected("3")
    talk.coordinator.engine_gone("2", 0)
    talk.regroup("1")
    talk.sent()
    talk.coordinator.engine_connected("3", NEW, 0)
    assert JoinAgain in talk.kinds("3")


def test_an_engine_that_calms_down_after_a_short_break_disturbs_nobody() -> None:
    talk = Talk().start("1", "2")
    back(talk, "2", talk.coordinator.members.current.number, "1", "2")
    assert called(talk, "1", "2") == [[], [TrainingDefined]]


def test_an_end_that_was_said_before_a_regroup_does_not_count_after_it() -> None:
    talk = Talk().start("1", "2")
    talk.finished("1")
    talk.coordinator.engine_gone("1", 0)  # its supervisor is quicker than engine 2
    talk.finished("2", EngineResult())
    talk.regroup("2", offset=10)
    assert talk.kinds("driver") == []


def test_an_engine_that_was_taken_for_dead_is_let_go_when_it_speaks() -> None:
    talk = Talk().start("1", "2")
    number = talk.coordinator.members.current.number
    talk.coordinator.engine_gone("2", 0)
    talk.regroup("1")
    talk.sent()
    talk.group_lost("2", generation=number)
    assert DiscardEngine("2") in talk.sent("supervisors")


def test_weights_that_did_not_arrive_are_given_again_though_nobody_died() -> None:
    talk = Talk().start("1")
    talk.finished("1")
    talk.sent()
    talk.begin()  # the driver, whose exchange broke off
    assert StartRegroup in talk.kinds("1")
    talk.regroup("1", offset=10)
    talk.finished("1")
    assert talk.kinds("driver") == [ReceiveStateFromEngine]


def test_whoever_is_asked_to_leave_in_a_regroup_stays_until_it_is_over() -> None:
    """A joining engine that has the weights, and is of no settled generation: the others wait for its word."""
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.switching("1", number, 5)
    talk.coordinator.state_received("3", number, 5, 0)
    talk.coordinator.engine_gone("2", 0)
    talk.sent()
    talk.coordinator.leave(["3"], 0)
    assert talk.kinds("3") == [] and talk.sent("supervisors") == []
    talk.regroup("1", "3")
    assert talk.coordinator.members.current.members == ("1", "3")
    assert talk.coordinator.change and talk.coordinator.change.leaving == ("3",)


def test_the_first_weights_count_though_the_coordinator_that_sent_for_them_has_died() -> None:
    """The engine introduces itself to the next one while it takes them from the driver."""
    talk = successor("1")
    talk.coordinator.engine_connected("1", NEW, 0)
    talk.begin()
    talk.coordinator.from_engine("1", StateReceived(1, 0), 0)
    talk.coordinator.check_deadlines(SETTLE_SECONDS + 20)
    assert talk.coordinator.members.phase is Phase.RUNNING
    assert talk.kinds("1")[-1] is StartRegroup


def test_who_gives_up_its_weights_as_the_coordinator_before_had_told_it_is_no_part_of_the_next_ones_regroup() -> None:
    """It would not answer, and the others would wait for it for ever."""
    talk = successor()
    talk.begin()
    talk.expect("1", "2")
    stood = status(4, "1", "2", state=EngineState.REGROUPING, regroup=2)
    talk.coordinator.engine_connected("2", stood, 0)
    talk.coordinator.join_request("2", join_request(2), 0)
    talk.coordinator.engine_connected("1", stood, 0)
    talk.coordinator.check_deadlines(SETTLE_SECONDS + 1)
    assert talk.coordinator.members.phase is Phase.RUNNING
    sent = [(send.to, type(send.message)) for send in talk.coordinator.members.take_sends()]
    assert ("2", JoinAgain) in sent and ("2", StartRegroup) not in sent and ("1", StartRegroup) in sent


def test_an_engine_that_comes_late_and_knows_of_a_later_regroup_is_called_to_one_that_is_later_still() -> None:
    talk = Talk().start("1", "2")
    number = talk.coordinator.members.current.number
    stood = status(number, "1", "2", state=EngineState.REGROUPING, regroup=7)
    talk.coordinator.engine_connected("2", stood, 0)
    assert talk.coordinator.regrouping and talk.coordinator.members.newest_regroup > 7


# ── what the coordinator before had begun ─────────────────────────────────────────────────────────────────────────


def test_a_new_coordinator_gives_no_number_that_an_engine_knows_from_the_one_before() -> None:
    """A generation that was published or planned, and that no engine has announced or entered yet."""
    for who in "12":
        talk = successor("1", "2")
        for name in "12":
            talk.coordinator.engine_connected(name, status(7, "1", "2", known=1008 if name == who else 7), 0)
        talk.begin()
        talk.come("3")
        assert talk.coordinator.change and talk.coordinator.change.new.number > 2000


def test_a_new_coordinator_gives_no_number_that_a_joining_engine_knows_from_the_one_before() -> None:
    talk = successor("1", "2")
    talk.coordinator.engine_connected("2", EngineConnected(EngineStatus(EngineState.JOINING, known=1008)), 0)
    talk.coordinator.engine_connected("1", status(7, "1", state=EngineState.REGROUPING), 0)
    talk.stand("1", 5)
    assert plan_of(talk, "1").generation > 2000


def test_a_number_that_an_engine_knows_that_comes_late_is_not_given_after_it() -> None:
    talk = Talk().start("1")
    talk.coordinator.engine_connected("2", EngineConnected(EngineStatus(EngineState.JOINING, known=50)), 0)
    talk.come("2")
    assert talk.coordinator.change and talk.coordinator.change.new.number > 50


def sent_back_by_the_one_before() -> Talk:
    """Both have the state and are called to a regroup; engine 2 has not yet read that it shall ask to join again."""
    talk = successor("1", "2")
    talk.begin()
    stood = status(7, "1", "2", state=EngineState.REGROUPING)
    for name in "12":
        talk.coordinator.engine_connected(name, stood, 0)
    assert called(talk, "1", "2") == [[TrainingDefined, StartRegroup], [TrainingDefined, StartRegroup]]
    return talk


def test_an_engine_that_was_sent_back_is_not_waited_for_in_a_regroup() -> None:
    talk = sent_back_by_the_one_before()
    talk.stand("1", 5)
    assert talk.kinds("1") == []
    talk.coordinator.join_request("2", join_request(3), 0)
    plan = plan_of(talk, "1")
    assert plan.plan.members == ("1",) and plan.lost == ()
    talk.coordinator.regrouped("1", plan.regroup, 0)
    assert talk.coordinator.members.current.members == ("1",)
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("1", "2")


def test_an_engine_that_asks_to_join_when_a_regroup_is_planned_begins_the_next_one_of_the_others() -> None:
    talk = sent_back_by_the_one_before()
    for name in "12":
        talk.stand(name, 5)
    talk.sent()
    talk.coordinator.join_request("2", join_request(3), 0)
    assert called(talk, "1", "2") == [[StartRegroup], []]
    talk.regroup("1")
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("1", "2")


def test_a_member_that_asks_to_join_begins_a_regroup_of_the_others() -> None:
    """They would wait in their collective for it."""
    talk = Talk().start("1", "2")
    talk.coordinator.join_request("2", join_request(0), 0)
    assert called(talk, "1", "2") == [[StartRegroup], []]
    talk.regroup("1")
    assert talk.coordinator.change and talk.coordinator.change.new.members == ("1", "2")


def test_when_the_last_engine_that_had_the_weights_asks_to_join_the_attempt_is_lost() -> None:
    talk = Talk().start("1")
    talk.coordinator.join_request("1", join_request(0), 0)
    assert [type(message) for message in talk.sent("supervisors")] == [StateLost]
