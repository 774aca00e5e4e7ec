"""After a crash: who is called, who gets what from whom, and that nobody is waited for who is gone."""

from __future__ import annotations

from typing import Any

from edt_runner.generations import Phase
from edt_runner.membership import Membership
from edt_runner.recovery import SETTLE_SECONDS
from edt_runner.rounds import VIEWS_SECONDS
from support.talk import FACTS, NEW, Talk


def called(talk: Talk, *names: str) -> list[list[str]]:
    """What each of them is told to do; news of the replicas disturb nobody."""
    said = [(send.to, send.message["kind"]) for send in talk.mind.take() if send.message["kind"] != "replicas"]
    return [[kind for to, kind in said if to == name] for name in names]


def test_the_survivors_are_woken_and_go_on_without_the_dead() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("2", 0)
    assert called(talk, "1", "2", "3") == [["wake"], [], ["wake"]]
    talk.stand("1", 5, spans=[[0, 2]])
    assert talk.said("1") == []  # not before all have spoken
    talk.stand("3", 5, spans=[[3, 4]])
    (told,) = talk.said("3")
    assert (told["kind"], told["members"], told["lost"]) == ("reform", ["1", "3"], ["2"])
    assert told["runs"] == [[0, 1, 2], [3]] and told["recomputed"] == 1
    talk.mind.reformed("1", 1, 0)
    assert talk.mind.re_forming
    talk.mind.reformed("3", 1, 0)
    assert talk.mind.current.members == ("1", "3") and not talk.mind.re_forming


def test_whoever_is_a_tick_behind_gets_the_vector_from_one_who_applied_it() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("3", 0)
    talk.said()
    talk.stand("1", 6, holds=True)
    talk.stand("2", 5, spans=[[2, 3]])
    told = talk.said("2")[0]
    assert (told["tick"], told["behind"], told["donors"], told["by"]) == (6, ["2"], ["1"], "vector")
    assert told["recomputed"] == 4  # of tick 6 nobody has anything


def test_whoever_is_behind_gets_the_whole_state_where_nobody_holds_the_vector() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("3", 0)
    talk.said()
    talk.stand("1", 6, holds=False)
    talk.stand("2", 5)
    told = talk.said("2")[0]
    assert (told["donors"], told["by"]) == (["1"], "state")


def test_hooks_that_end_the_training_in_one_engine_only_are_the_scripts_failure() -> None:
    """Found when the other has waited for long; else both would wait for ever."""
    talk = Talk().start("1", "2")
    talk.mind.finished("1", talk.mind.current.number, {"digest": "x", "step": 5}, 0)
    talk.mind.stuck("2")
    talk.said()
    talk.stand("1", 6, ended=True)
    assert talk.mind.phase is not Phase.FAILED
    talk.stand("2", 6)
    told = next(message for message in talk.said("driver") if message["kind"] == "failed")
    assert "in engine 1 have ended the training, those in engine 2 have not" in told["message"]


def test_whoever_is_behind_at_the_end_of_the_training_is_no_failure() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("3", 0)
    talk.said()
    talk.stand("1", 6, ended=True)
    talk.stand("2", 5)
    assert talk.said("2")[0]["kind"] == "reform"


def test_who_dies_before_all_have_spoken_is_left_out_of_the_round() -> None:
    """The others have often seen its connections break before its supervisor tells that it is gone."""
    talk = Talk().start("1", "2", "3")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    talk.stand("1", 6)
    talk.stand("2", 5, spans=[[0, 2]])
    talk.said()
    talk.mind.gone("3", 0)
    (told,) = talk.said("1")
    assert (told["kind"], told["round"], told["members"], told["lost"]) == ("reform", 1, ["1", "2"], ["3"])
    for name in ("1", "2"):
        talk.mind.reformed(name, 1, 0)
    assert talk.mind.current.members == ("1", "2") and not talk.mind.re_forming


def test_what_the_dead_had_said_of_itself_is_forgotten_with_it() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    talk.stand("3", 6)  # the only one that has applied the step
    talk.mind.gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 5)
    assert [(message["tick"], message["behind"]) for message in talk.said("1") if message["kind"] == "reform"] == [
        (5, [])
    ]


def test_a_round_of_which_all_die_before_they_have_spoken_loses_the_attempt() -> None:
    talk = Talk().start("1", "2")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    talk.mind.gone("2", 0)
    talk.mind.gone("1", 0)
    assert talk.mind.phase is Phase.FAILED


def test_a_death_in_a_round_that_is_decided_begins_the_next_one_and_the_answers_to_the_first_are_stale() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 5)
    talk.said()
    talk.mind.gone("2", 0)
    assert called(talk, "1") == [["wake"]]
    standing = {"tick": 5, "holds": True, "ended": False, "spans": [], "addresses": [], "door": "", "workers": 4}
    talk.mind.stands("1", 1, standing, 0)
    assert talk.said("1") == []
    talk.reform("1")
    assert talk.mind.current.members == ("1",)


def test_when_nobody_is_left_who_has_the_weights_the_attempt_is_lost() -> None:
    talk = Talk().start("1", "2")
    talk.mind.gone("1", 0)
    talk.said()
    talk.mind.gone("2", 0)
    assert talk.mind.phase is Phase.FAILED
    assert [message["kind"] for message in talk.said("supervisors")] == ["lost"]


def test_trouble_without_a_death_is_a_round_of_all() -> None:
    talk = Talk().start("1", "2")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    assert called(talk, "1", "2") == [["wake"], ["wake"]]
    talk.mind.trouble("2", talk.mind.current.number, 0, [], 0)  # of the same breakdown
    assert called(talk, "1", "2") == [[], []]


def test_a_round_does_away_with_a_planned_change_and_the_newcomer_asks_again() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.build()
    talk.said()
    talk.mind.gone("2", 0)
    assert called(talk, "1", "3") == [["cancel", "wake"], ["cancel", "rejoin"]]
    talk.reform("1")
    assert talk.mind.current.members == ("1",) and talk.mind.change is None
    talk.come("3")
    assert talk.mind.change and talk.mind.change.new.members == ("1", "3")


def test_a_newcomer_that_has_the_weights_belongs_to_the_round() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.mind.switching("1", number, 5, 0)
    talk.mind.received("3", number, 5, 0)
    talk.said()
    talk.mind.gone("2", 0)
    assert called(talk, "1", "3")[1] == ["cancel", "wake"]
    talk.reform("1", "3")
    assert talk.mind.current.members == ("1", "3")


def test_a_leaver_that_the_others_have_not_all_left_behind_comes_back_and_leaves_anew() -> None:
    """It may be the only one that has applied the last step."""
    talk = Talk().start("1", "2", "3")
    talk.mind.leave(["1"], 0)
    number = talk.build()
    talk.mind.switching("1", number, 6, 0)
    talk.said()
    talk.mind.gone("3", 0)
    assert called(talk, "1", "2") == [["cancel", "wake"], ["cancel", "wake"]]
    talk.reform("1", "2", tick=6)
    assert talk.mind.change and talk.mind.change.new.members == ("2",)


def test_two_that_cannot_reach_each_other_do_not_stay_together() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    for name in ("1", "2", "3"):
        talk.stand(name, 5)
    talk.said()
    talk.mind.trouble("1", talk.mind.current.number, 1, ["3"], 0)
    assert talk.mind.round == 1  # the others may see it otherwise
    talk.mind.reformed("2", 1, 0)
    talk.mind.trouble("3", talk.mind.current.number, 1, ["1"], 0)
    assert {"kind": "discard", "engine": "3"} in talk.said("supervisors")
    talk.reform("1", "2")
    assert talk.mind.current.members == ("1", "2")


def test_who_gives_to_one_behind_that_another_cannot_reach_speaks_first_and_all_are_heard() -> None:
    """1 reaches both and has built the group; 2 and 3 give up, which ends what 1 gives, and look whom they reach."""
    talk = Talk().start("1", "2", "3")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    for name, tick in (("1", 6), ("2", 6), ("3", 5)):
        talk.stand(name, tick)
    talk.said()
    talk.mind.trouble("1", talk.mind.current.number, 1, [], 0, built=True)
    talk.mind.trouble("2", talk.mind.current.number, 1, ["3"], 1)
    assert talk.mind.round == 1
    talk.mind.trouble("3", talk.mind.current.number, 1, ["2"], 1)
    assert {"kind": "discard", "engine": "3"} in talk.said("supervisors")
    talk.reform("1", "2", tick=6)
    assert talk.mind.current.members == ("1", "2")


def test_a_view_that_is_never_told_is_not_waited_for_for_ever() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.trouble("1", talk.mind.current.number, 0, [], 0)
    for name in ("1", "2", "3"):
        talk.stand(name, 5)
    talk.mind.trouble("2", talk.mind.current.number, 1, ["3"], 1)
    talk.mind.reformed("1", 1, 1)
    talk.mind.tick(1 + VIEWS_SECONDS)
    assert talk.mind.round == 1
    talk.said()
    talk.mind.tick(1.1 + VIEWS_SECONDS)
    assert {"kind": "discard", "engine": "3"} in talk.said("supervisors")
    assert talk.mind.round == 2


def test_a_micro_batch_that_ends_two_engines_is_the_scripts_and_named() -> None:
    talk = Talk().start("1", "2", "3")
    talk.mind.gone("3", 0, (5, 2), "signal 11")
    talk.reform("1", "2")
    talk.said()
    talk.mind.gone("2", 0, (5, 2), "signal 11")
    (failed,) = talk.said("driver")
    assert failed["kind"] == "failed" and failed["failed_step"] == 5
    assert "samples" in failed["message"] and "ended 2 engines (signal 11 and signal 11)" in failed["message"]


def test_an_exception_in_one_engine_is_not_yet_the_scripts() -> None:
    talk = Talk().start("1", "2")
    talk.mind.raised("2", "RuntimeError: CUDA error", "Traceback …")
    talk.mind.gone("2", 0, (5, 2), "RuntimeError: CUDA error")
    assert talk.said("driver") == []
    talk.reform("1")
    assert talk.mind.current.members == ("1",)


def test_an_exception_in_the_last_engine_is_told_with_its_traceback() -> None:
    talk = Talk().start("1")
    talk.mind.raised("1", "ValueError: no", "Traceback …")
    talk.mind.gone("1", 0, (5, 2), "ValueError: no")
    (failed,) = talk.said("driver")
    assert (failed["message"], failed["traceback"]) == ("ValueError: no", "Traceback …")


def test_an_engine_that_dies_at_the_end_is_not_missed_and_another_gives_the_weights() -> None:
    talk = Talk().start("1", "2")
    body = {"digest": "d", "step": 10}
    for name, told in (("1", body), ("2", {})):
        talk.mind.finished(name, talk.mind.current.number, told, 0)
    talk.said()
    talk.mind.gone("1", 0)
    talk.reform("2", tick=10)
    assert talk.mind.phase is Phase.RUNNING
    talk.said()
    talk.mind.finished("2", talk.mind.current.number, body, 0)
    assert talk.kinds("driver") == ["handover"]


def test_a_driver_that_is_started_again_gets_the_weights_at_the_end() -> None:
    talk = Talk().start("1")
    talk.mind.driver_lost()
    talk.mind.finished("1", talk.mind.current.number, {"digest": "d", "step": 10}, 0)
    assert talk.kinds("driver") == []
    talk.mind.begin(talk.definition, 0)
    assert talk.kinds("driver") == ["handover"]


def test_a_driver_that_comes_to_another_training_is_refused() -> None:
    talk = Talk().start("1")
    talk.mind.driver_lost()
    talk.mind.begin({**talk.definition, "seed": 8}, 0)
    assert "seed was 7 and is 8" in talk.said("driver")[0]["message"]


def test_the_first_weights_are_given_again_when_driver_or_engine_die_over_it() -> None:
    talk = Talk()
    talk.mind.begin(talk.definition, 0)
    talk.come("1")
    assert talk.mind.phase is Phase.STARTING
    talk.come("2")
    talk.said()
    talk.mind.gone("1", 0)
    assert [send.to for send in talk.mind.take() if send.message["kind"] == "handover"] == ["driver", "2"]
    talk.mind.driver_lost()
    talk.mind.begin(talk.definition, 0)
    assert "rejoin" in talk.kinds("2")
    talk.come("2")
    assert talk.kinds("2")[-1] == "handover"


def test_the_first_weights_stay_given_though_the_driver_was_seen_to_die_before_the_engine_said_so() -> None:
    talk = Talk()
    talk.mind.begin(talk.definition, 0)
    talk.come("1")
    talk.said()
    talk.mind.driver_lost()
    talk.mind.received("1", talk.mind.current.number, 0, 0)
    talk.mind.begin(talk.definition, 0)
    assert talk.mind.phase is Phase.RUNNING
    assert called(talk, "1") == [["settled", "definition"]]


# ── a coordinator that is not the first ───────────────────────────────────────────────────────────────────────────


def standing(generation: int, *members: str, doing: str = "training", **more: Any) -> dict[str, Any]:
    told = {"generation": generation, "members": list(members), "doing": doing, "announced": generation, "round": 3}
    return {**told, **more}


def successor(*names: str) -> Talk:
    talk = Talk()
    talk.mind = Membership(recovering=True)
    for name in names:
        talk.mind.expect(name)
    return talk


def test_a_new_coordinator_watches_on_where_all_train_in_one_generation() -> None:
    talk = successor("1", "2")
    talk.mind.connect("1", standing(7, "1", "2"), 0)
    assert talk.mind.phase is Phase.RECOVERING
    talk.mind.connect("2", standing(7, "1", "2"), 0)
    assert talk.mind.phase is Phase.RUNNING and talk.mind.current.members == ("1", "2")
    assert called(talk, "1", "2") == [[], []]  # nobody was disturbed
    talk.mind.begin(talk.definition, 0)
    talk.come("3")
    assert talk.mind.change and talk.mind.change.new.number > 1000


def test_a_new_coordinator_tells_who_has_joined_where_the_one_before_may_not_have_come_to_it() -> None:
    talk = successor("1", "2")
    talk.mind.connect("1", standing(7, "1", "2", settled=6), 0)
    talk.mind.connect("2", standing(7, "1", "2", step=5), 0)
    told = [message["body"] for message in talk.said("leader") if message.get("report") == "engine-joined"]
    assert told == [{"allocation": 2, "generation": 7, "step": 5}]


def test_a_new_coordinator_calls_a_round_where_something_was_half_done() -> None:
    for half in (
        standing(8, "1", "2", "3"),
        standing(7, "1", "2", announced=8),
        standing(7, "1", "2", doing="reforming"),
        standing(7, "1", "2", doing="aside", next=8),
    ):
        talk = successor("1", "2")
        talk.mind.connect("1", standing(7, "1", "2"), 0)
        talk.mind.connect("2", half, 0)
        talk.mind.tick(SETTLE_SECONDS + 1)
        assert called(talk, "1", "2") == [["wake"], ["wake"]], half


def test_a_new_coordinator_does_not_wait_for_an_engine_that_is_known_to_be_gone() -> None:
    talk = successor("1")
    talk.mind.gone("2", 0)
    talk.mind.connect("1", standing(7, "1", "2"), 0)
    assert called(talk, "1") == [["wake"]]
    talk.reform("1")
    assert talk.mind.current.members == ("1",)


def test_a_new_coordinator_lets_those_ask_again_who_have_nothing() -> None:
    talk = successor("1", "2")
    talk.mind.connect("2", standing(0, doing="joining"), 0)
    talk.mind.connect("1", standing(7, "1"), 0)
    assert called(talk, "2") == [["rejoin"]]


def test_an_engine_that_had_asked_before_it_was_told_to_ask_anew_is_let_in_once() -> None:
    talk = successor("1", "2")
    talk.mind.connect("2", standing(0, doing="joining"), 0)
    talk.mind.connect("1", standing(7, "1"), 0)
    talk.mind.begin(talk.definition, 0)
    talk.mind.ready("2", {"training samples": 9}, [9002], 0, 0)  # was on its way
    assert talk.mind.change is None
    talk.mind.ready("2", {"training samples": 9}, [9002], 0, talk.mind.round)
    first = talk.mind.change
    talk.mind.ready("2", {"training samples": 9}, [9002], 0, talk.mind.round)
    assert first is not None and talk.mind.change is first


def test_without_any_engine_that_has_the_weights_a_new_coordinator_gives_up() -> None:
    talk = successor()
    talk.mind.tick(SETTLE_SECONDS + 100)
    assert [message["kind"] for message in talk.said("supervisors")] == ["lost"]


def test_what_is_said_to_a_coordinator_that_does_not_know_yet_who_trains_is_not_lost() -> None:
    body = {"digest": "d", "step": 10}
    for news in ("finished", "trouble"):
        talk = successor("1", "2", "3")  # engine 3 is still running its script up to train()
        talk.mind.begin(talk.definition, 0)
        for name in "12":
            talk.mind.connect(name, standing(7, "1", "2"), 0)
        for name in "12":
            if news == "finished":
                talk.mind.finished(name, 7, body, 1)
            else:
                talk.mind.trouble(name, 7, 3, [], 1)
        talk.said()
        talk.mind.tick(SETTLE_SECONDS + 1)
        assert called(talk, "1") == [["handover"] if news == "finished" else ["wake"]]


# ── a line that breaks while both its ends live ───────────────────────────────────────────────────────────────────


def back(talk: Talk, name: str, generation: int, *members: str, **more: Any) -> None:
    talk.mind.disconnect(name)
    talk.mind.connect(name, standing(generation, *members, **{"round": talk.mind.round, **more}), 0)


def test_an_answer_that_was_lost_with_its_line_is_asked_for_in_a_new_round() -> None:
    for stood in ((), ("1",), ("1", "2")):
        talk = Talk().start("1", "2", "3")
        talk.mind.gone("3", 0)
        for name in stood:
            talk.stand(name, 5)
        first = talk.mind.round
        back(talk, "2", 1, "1", "2", "3", doing="reforming")
        talk.said()
        assert talk.mind.round > first
        talk.reform("1", "2")
        assert talk.mind.current.members == ("1", "2")


def test_an_end_that_was_lost_with_its_line_is_told_again() -> None:
    talk = Talk().start("1", "2")
    number = talk.mind.current.number
    talk.mind.finished("1", number, {"digest": "d", "step": 10}, 0)
    talk.said()
    back(talk, "2", number, "1", "2", doing="ended", body={})
    assert called(talk, "1", "2") == [["wake"], ["definition", "wake"]]
    talk.reform("1", "2", tick=10)
    for name, told in (("1", {"digest": "d", "step": 10}), ("2", {})):
        talk.mind.finished(name, talk.mind.current.number, told, 0)
    assert talk.kinds("driver") == ["handover"]


def test_a_newcomer_that_was_off_the_line_is_told_again_to_ask_anew() -> None:
    talk = Talk().start("1", "2")
    talk.come("3")
    talk.build()
    talk.mind.disconnect("3")
    talk.mind.gone("2", 0)
    talk.reform("1")
    talk.said()
    talk.mind.connect("3", NEW, 0)
    assert "rejoin" in talk.kinds("3")


def test_an_engine_that_calms_down_after_a_short_break_disturbs_nobody() -> None:
    talk = Talk().start("1", "2")
    back(talk, "2", talk.mind.current.number, "1", "2")
    assert called(talk, "1", "2") == [[], ["definition"]]


def test_an_end_that_was_said_before_a_round_does_not_count_after_it() -> None:
    talk = Talk().start("1", "2")
    number = talk.mind.current.number
    talk.mind.finished("1", number, {"digest": "d", "step": 10}, 0)
    talk.mind.gone("1", 0)  # its supervisor is quicker than engine 2
    talk.mind.finished("2", number, {}, 0)
    talk.reform("2", tick=10)
    assert talk.kinds("driver") == []


def test_an_engine_that_was_taken_for_dead_is_let_go_when_it_speaks() -> None:
    talk = Talk().start("1", "2")
    number = talk.mind.current.number
    talk.mind.gone("2", 0)
    talk.reform("1")
    talk.said()
    talk.mind.trouble("2", number, 0, [], 0)
    assert {"kind": "discard", "engine": "2"} in talk.said("supervisors")


def test_weights_that_did_not_arrive_are_given_again_though_nobody_died() -> None:
    talk = Talk().start("1")
    number, body = talk.mind.current.number, {"digest": "d", "step": 10}
    talk.mind.finished("1", number, body, 0)
    talk.said()
    talk.mind.begin(talk.definition, 0)  # the driver, whose exchange broke off
    assert "wake" in talk.kinds("1")
    talk.reform("1", tick=10)
    talk.mind.finished("1", talk.mind.current.number, body, 0)
    assert talk.kinds("driver") == ["handover"]


def test_whoever_is_asked_to_leave_in_a_round_stays_until_it_is_over() -> None:
    """A newcomer that has the weights, and is of no settled generation: the others wait for its word."""
    talk = Talk().start("1", "2")
    talk.come("3")
    number = talk.build()
    talk.mind.switching("1", number, 5, 0)
    talk.mind.received("3", number, 5, 0)
    talk.mind.gone("2", 0)
    talk.said()
    talk.mind.leave(["3"], 0)
    assert talk.kinds("3") == [] and talk.said("supervisors") == []
    talk.reform("1", "3")
    assert talk.mind.current.members == ("1", "3")
    assert talk.mind.change and talk.mind.change.leavers == ("3",)


def test_the_first_weights_count_though_the_coordinator_that_sent_for_them_has_died() -> None:
    """The engine introduces itself to the next one while it takes them from the driver."""
    mind = Membership(recovering=True)
    talk = Talk()
    mind.expect("1")
    mind.connect("1", NEW, 0)
    mind.begin(talk.definition, 0)
    mind.received("1", 1, 0, 0)
    mind.tick(SETTLE_SECONDS + 20)
    assert mind.phase is Phase.RUNNING
    assert [send.message["kind"] for send in mind.take() if send.to == "1"][-1] == "wake"


def test_who_gives_up_its_weights_as_the_coordinator_before_had_told_it_is_no_part_of_the_next_ones_round() -> None:
    """It would not answer, and the others would wait for it for ever."""
    mind = Membership(recovering=True)
    talk = Talk()
    mind.begin(talk.definition, 0)
    for name in ("1", "2"):
        mind.expect(name)
    standing = {"generation": 4, "members": ["1", "2"], "doing": "reforming", "announced": 4, "round": 2}
    mind.connect("2", standing, 0)
    mind.ready("2", FACTS, [9002], 0, 2)
    mind.connect("1", standing, 0)
    mind.tick(SETTLE_SECONDS + 1)
    assert mind.phase is Phase.RUNNING
    said = [(send.to, send.message["kind"]) for send in mind.take()]
    assert ("2", "rejoin") in said and ("2", "wake") not in said and ("1", "wake") in said


def test_an_engine_that_comes_late_and_knows_of_a_later_round_is_called_to_one_that_is_later_still() -> None:
    talk = Talk().start("1", "2")
    number = talk.mind.current.number
    standing = {"generation": number, "members": ["1", "2"], "doing": "reforming", "announced": number, "round": 7}
    talk.mind.connect("2", standing, 0)
    assert talk.mind.re_forming and talk.mind.round > 7
