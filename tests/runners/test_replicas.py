"""Whether all engines hold the same: what they tell of it, when, and what the coordinator makes of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from edt_runner.checksums import checksum
from edt_runner.decisions import unlike
from edt_runner.engine.adapter import State
from edt_runner.engine.comparing import Comparing
from edt_runner.engine.schedule import Schedule
from edt_runner.generations import Phase
from edt_runner.membership import Membership
from edt_runner.reform import Standing, reform
from edt_runner.replicas import History, compare
from support.talk import NEW, Talk

NAMES = ["optimizer setting lr of group 0", "parameter weight"]
SAME = ("0.1", "ab12")


def replica(
    members: Sequence[str], values: Sequence[str] = SAME, *, generation: int = 3, tick: int = 6, **more: Any
) -> dict[str, Any]:
    fields = {"generation": generation, "members": list(members), "tick": tick, "step": tick, "reason": "epoch"}
    return {**fields, "values": list(values), "names": NAMES, "seconds": 0.001, "tick_seconds": 0.1, **more}


def reports(talk: Talk) -> list[tuple[str, Mapping[str, Any]]]:
    return [(found["report"], found["body"]) for found in talk.said("leader") if found["kind"] == "report"]


def tell(talk: Talk, *values: Sequence[str], **more: Any) -> None:
    """Engines 1, 2, … tell these."""
    members = [str(index + 1) for index in range(len(values))]
    for name, own in zip(members, values, strict=True):
        talk.mind.replica(name, replica(members, own, **more), talk.now)


def running(engines: int = 2, **definition: Any) -> Talk:
    talk = Talk()
    talk.definition.update(definition)
    return talk.start(*(str(index + 1) for index in range(engines)))


# ── a checksum ──────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("size", [1, 7, 8191, 8192, 8193, 3 * 524288 + 5])
def test_a_checksum_sees_every_byte_and_its_place(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    first = checksum(data)
    assert checksum(data.copy()) == first and checksum(np.append(data, np.uint8(0))) != first
    for place in {0, size // 2, size - 1}:
        data[place] ^= 1
        assert checksum(data) != first
        data[place] ^= 1


def test_two_blocks_in_each_others_place_are_another_checksum() -> None:
    block = 64 * 8192
    data = np.random.default_rng(0).integers(0, 256, 4 * block, dtype=np.uint8)
    other = np.concatenate([data[block : 2 * block], data[:block], data[2 * block :]])
    assert checksum(data) != checksum(other)


# ── comparing ───────────────────────────────────────────────────────────────────────────────────────────────────
def told(*values: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {str(index): {"values": list(own), "names": NAMES} for index, own in enumerate(values, 3)}


def test_the_first_thing_that_differs_is_named_with_both_values() -> None:
    found = compare(["3", "4", "5"], told(SAME, SAME, ("0.05", "cd34")))
    assert found == (("5",), "optimizer setting lr of group 0: 0.1 in engine 3, 0.05 in engine 5")
    assert compare(["3", "4"], told(SAME, SAME)) == ((), "")


def test_engines_with_other_tensors_differ() -> None:
    differing, what = compare(["3", "4"], told(SAME, (*SAME, "ef56")))
    assert differing == ("4",) and "2 in engine 3, 3 in engine 4" in what


def test_equal_replicas_are_reported_and_nothing_else_happens() -> None:
    talk = running()
    tell(talk, SAME, SAME)
    assert reports(talk) == [("replicas-compared", {"step": 6, "engines": 2, "equal": True, "reason": "epoch"})]
    assert not talk.mind.re_forming


def test_nothing_is_concluded_before_all_have_told() -> None:
    talk = running(3)
    for name in ("1", "2"):
        talk.mind.replica(name, replica(["1", "2", "3"], SAME if name == "1" else ("0", "0")), 0)
    assert reports(talk) == []


def test_what_one_never_told_is_forgotten_when_a_later_step_is_compared() -> None:
    """Engine 3 died; the others have found together, and compare later."""
    talk = running(3)
    talk.mind.replica("1", replica(["1", "2", "3"]), 0)
    talk.mind.replica("2", replica(["1", "2", "3"]), 0)
    tell(talk, SAME, SAME, generation=4, tick=9)
    assert [body["step"] for _, body in reports(talk)] == [9]
    talk.mind.replica("3", replica(["1", "2", "3"], ("0", "0")), 0)
    assert reports(talk) == [] and not talk.mind.re_forming


def test_checksums_of_different_steps_are_not_compared() -> None:
    talk = running()
    talk.mind.replica("1", replica(["1", "2"], tick=6), 0)
    talk.mind.replica("2", replica(["1", "2"], ("0.2", "x"), tick=7), 0)
    assert reports(talk) == []


def test_comparisons_that_nobody_completes_do_not_pile_up() -> None:
    talk = running()
    for tick in range(1000):
        talk.mind.replica("1", replica(["1", "2"], tick=tick), 0)
    assert len(talk.mind._replicas._waiting) < 10


# ── when they differ ────────────────────────────────────────────────────────────────────────────────────────────
OTHER = ("0.05", "ab12")


def test_engines_that_differ_are_named_once_and_take_the_first_ones_state() -> None:
    talk = running(3)
    tell(talk, SAME, OTHER, SAME)
    (compared, ended) = reports(talk)
    assert compared == ("replicas-compared", {"step": 6, "engines": 3, "equal": False, "reason": "epoch"})
    assert ended[0] == "guarantee-ended" and (ended[1]["engine"], ended[1]["step"]) == (2, 6)
    assert ended[1]["difference"] == "optimizer setting lr of group 0: 0.1 in engine 1, 0.05 in engine 2"
    for name in ("1", "2", "3"):
        talk.stand(name, 6)
    (plan,) = [message for message in talk.said("1") if message["kind"] == "reform"]
    assert (plan["source"], plan["mended"], plan["behind"]) == ("1", ["2"], [])
    for name in ("1", "2", "3"):
        talk.mind.reformed(name, talk.mind.round, 0)
    assert not talk.mind.re_forming
    tell(talk, SAME, OTHER, SAME, generation=5, tick=12)
    assert [kind for kind, _ in reports(talk)] == ["replicas-compared"], "the guarantee ends once"
    assert talk.mind.re_forming, "and states are made equal again"


def test_whoever_dies_while_states_are_made_equal_leaves_that_to_the_next_round() -> None:
    talk = running(3)
    tell(talk, SAME, OTHER, SAME)
    for name in ("1", "2", "3"):
        talk.stand(name, 6)
    talk.mind.gone("3", 0)
    talk.said()
    talk.stand("1", 6)
    talk.stand("2", 6)
    (plan,) = [message for message in talk.said("2") if message["kind"] == "reform"]
    assert (plan["members"], plan["source"], plan["mended"]) == (["1", "2"], "1", ["2"])


def test_what_is_found_while_engines_find_together_is_mended_afterwards() -> None:
    talk = running(3)
    talk.mind.gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 6)
    tell(talk, SAME, OTHER)
    for name in ("1", "2"):
        talk.mind.reformed(name, talk.mind.round, 0)
    assert talk.mind.re_forming
    for name in ("1", "2"):
        talk.stand(name, 6)
    assert [m["mended"] for m in talk.said("1") if m["kind"] == "reform"] == [[], ["2"]]


def test_a_mismatch_ends_the_training_where_its_user_says_stop() -> None:
    talk = running(on_mismatch="stop")
    tell(talk, SAME, OTHER)
    (failed,) = [message for message in talk.said("driver") if message["kind"] == "failed"]
    assert "lr of group 0: 0.1 in engine 1, 0.05 in engine 2" in failed["message"]


def test_all_go_back_to_where_they_were_known_to_be_equal_and_the_second_time_it_is_over() -> None:
    talk = running(on_mismatch="restore")
    tell(talk, SAME, SAME, tick=6)
    tell(talk, SAME, OTHER, tick=9)
    for name in ("1", "2"):
        talk.stand(name, 9)
    (plan,) = [message for message in talk.said("2") if message["kind"] == "reform"]
    assert (plan["restore"], plan["source"], plan["mended"]) == (6, "1", ["2"])
    for name in ("1", "2"):
        talk.mind.reformed(name, talk.mind.round, 0)
    assert not talk.mind.re_forming
    tell(talk, SAME, OTHER, generation=5, tick=9)
    assert talk.mind.phase is Phase.FAILED


def test_a_mismatch_at_the_end_is_named_and_the_first_engines_weights_are_the_result() -> None:
    talk = running()
    number = talk.mind.current.number
    talk.mind.finished("1", number, {"digest": "d", "step": 10, "values": list(SAME), "names": NAMES}, 0)
    talk.mind.finished("2", number, {"values": list(OTHER)}, 0)
    messages = talk.said()
    found = [message["report"] for message in messages if message["kind"] == "report"]
    assert found == ["replicas-compared", "guarantee-ended"]
    assert [message["kind"] for message in messages].count("handover") == 2


def test_whatever_ends_the_guarantee_ends_a_training_that_must_be_exact() -> None:
    talk = running(require_exact=True)
    talk.mind.guarantee_ended("running_mean", "a buffer that cannot be combined")
    (failed,) = [message for message in talk.said("driver") if message["kind"] == "failed"]
    why = "running_mean: a buffer that cannot be combined"
    assert failed["message"] == f"require_exact=True, and the result is no longer exact because of {why}"


# ── unlike engines ──────────────────────────────────────────────────────────────────────────────────────────────
ONE, TWO = {"threads": 1, "CPU capability": "AVX2"}, {"threads": 2, "CPU capability": "AVX2"}


def comes(talk: Talk, name: str, computing: Mapping[str, Any]) -> None:
    talk.mind.expect(name)
    talk.mind.connect(name, {**NEW, "computing": computing}, talk.now)
    talk.mind.ready(name, {"training samples": 9}, [f"here:{9000 + int(name)}"], talk.now, talk.mind.round)


def begun(computing: Mapping[str, Any], **definition: Any) -> Talk:
    """A training of engine 1."""
    talk = Talk()
    talk.definition.update(definition)
    talk.mind.begin(talk.definition, 0)
    comes(talk, "1", computing)
    talk.mind.received("1", talk.mind.current.number, 0, 0)
    talk.said()
    return talk


def test_an_engine_that_computes_otherwise_ends_the_guarantee_as_it_joins() -> None:
    talk = begun(ONE)
    comes(talk, "2", TWO)
    assert reports(talk) == []
    talk.switch()
    (_, body) = next(found for found in reports(talk) if found[0] == "guarantee-ended")
    assert body["difference"] == "threads: 1 in engine 1, 2 in engine 2" and body["engine"] == 2


def test_engines_that_compute_alike_join_without_a_word() -> None:
    talk = begun(ONE)
    comes(talk, "2", {**ONE, "a name of a later release": 5})
    talk.switch()
    assert [kind for kind, _ in reports(talk)] == ["engine-joined"]


def test_an_unlike_engine_is_sent_away_where_the_result_must_be_exact() -> None:
    talk = begun(ONE, require_exact=True)
    comes(talk, "2", TWO)
    assert talk.mind.change is None
    (answer,) = [message for message in talk.said("2") if message["kind"] == "exit"]
    assert answer["unlike"] == "require_exact=True, and threads: 1 in engine 1, 2 in engine 2"
    talk.mind.gone("2", 0)
    assert talk.mind.phase is Phase.RUNNING
    comes(talk, "3", ONE)
    assert talk.mind.change is not None and talk.mind.change.newcomers == ("3",)


@pytest.mark.parametrize("required", [False, True])
def test_a_checkpoint_of_an_unlike_machine_ends_the_guarantee_or_the_job(required: bool) -> None:
    talk = Talk()
    talk.definition["require_exact"] = required
    talk.mind.begin(talk.definition, 0, History(computing=ONE, equal_at=4).to_json_object())
    comes(talk, "1", TWO)
    if required:
        assert talk.mind.phase is Phase.FAILED
        return
    talk.mind.received("1", talk.mind.current.number, 4, 0)
    (_, body) = next(found for found in reports(talk) if found[0] == "guarantee-ended")
    assert body["difference"] == "threads: 1 in the engines before, 2 in engine 1"


# ── who gives its state to whom ─────────────────────────────────────────────────────────────────────────────────
def test_an_engine_that_is_distrusted_keeps_no_sums_and_gives_no_state() -> None:
    there = {"1": Standing(5, holds=False), "2": Standing(5, holds=True, spans=((0, 2),)), "3": Standing(4, holds=True)}
    plan = reform(("1", "2", "3"), there, 4, distrusted={"2"})
    assert (plan.by, plan.source, plan.mended) == ("vector", "1", ("2",))
    assert plan.recomputed == 4
    there["2"] = Standing(5, holds=False)
    plan = reform(("1", "2", "3"), there, 4, distrusted={"2"})
    assert (plan.by, plan.donors) == ("state", ("1",))


def test_where_only_distrusted_engines_are_in_front_the_first_of_them_is_the_norm() -> None:
    there = {"1": Standing(4, holds=True), "2": Standing(5, holds=False), "3": Standing(5, holds=False)}
    plan = reform(("1", "2", "3"), there, 4, distrusted={"2", "3"})
    assert (plan.by, plan.donors, plan.source, plan.mended) == ("state", ("2",), "2", ("3",))


def test_without_distrust_nobody_gives_anything() -> None:
    plan = reform(("1", "2"), {"1": Standing(5, holds=True), "2": Standing(5, holds=True)}, 4)
    assert (plan.source, plan.mended, plan.restore) == ("", (), None)


# ── what is said at the end ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("history", "words"),
    [
        (History(), "never compared: one engine trained at a time"),
        (History(several=True), "never compared, though several engines trained (no comparison came to its end)"),
        (History(several=True, compared=1, last_step=9), "compared once, last at step 9: they were equal"),
        (History(compared=3, ended="threads: unlike"), "not exact because of threads: unlike"),
    ],
)
def test_a_training_ends_with_what_is_true_of_its_replicas(history: History, words: str) -> None:
    assert words in history.verdict(wanted=True)
    assert "compare_interval=0" in History(several=True).verdict(wanted=False)


def test_a_fast_reduction_is_said_to_be_not_exact_from_the_beginning() -> None:
    ended = {}
    for exact in (True, False):
        talk = Talk()
        talk.mind.begin({**talk.definition, "exact": exact}, talk.now)
        ended[exact] = [body for kind, body in reports(talk) if kind == "guarantee-ended"]
    assert ended[True] == []
    (body,) = ended[False]
    assert body["what"] == "reduction" and "depends on the number of engines" in body["why"]


def test_a_coordinator_that_is_new_goes_on_with_what_the_driver_knows() -> None:
    before = History(compared=4, last_step=12, several=True, ended="x: y", equal_at=12, restored=True, computing=ONE)
    talk = running()
    talk.mind.begin(talk.definition, 0, before.to_json_object())
    assert talk.mind._replicas.history == before


# ── when an engine tells ────────────────────────────────────────────────────────────────────────────────────────
class Line:
    compare_from = 0

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def tell(self, kind: str, **fields: Any) -> None:
        self.said.append({"kind": kind, **fields})


def exported() -> State:
    """Another thread would see what a pass moves and puts back."""
    assert threading.current_thread() is threading.main_thread()
    return State({}, {})


def train(
    interval: int | None, *, joined: int | None = None, line: Line | None = None, engines: int = 2
) -> list[tuple[int, str]]:
    """(step, reason) of each comparison in three epochs of four steps, with a validation after each."""
    schedule = Schedule(train_samples=16, test_samples=4, logical_workers=1, batch_size=4, epochs=3)
    line = line or Line()
    comparing = Comparing(line, exported, lambda state: [("a", "1")], interval, clock=lambda: 0.0)
    for tick in range(schedule.ticks - 1):
        if tick == joined:
            comparing.joined()
        where, members = schedule.at(tick), tuple("123"[:engines])
        comparing.committed(where, tick + 1, generation=1, members=members, name="1")
    comparing.wait()
    return [(found["step"], found["reason"]) for found in line.said]


def test_replicas_are_compared_after_a_join_and_at_each_epochs_end() -> None:
    assert train(None, joined=1) == [(2, "join"), (4, "epoch"), (8, "epoch")]


def test_a_join_before_a_validation_is_compared_after_the_next_training_step() -> None:
    assert train(None, joined=4) == [(4, "epoch"), (5, "join"), (8, "epoch")]


def test_an_interval_counts_training_steps_and_stands_in_for_the_epochs() -> None:
    assert train(3, joined=1) == [(2, "join"), (3, "interval"), (6, "interval"), (9, "interval"), (12, "interval")]


def test_nothing_is_compared_where_that_is_not_wanted_or_one_engine_trains() -> None:
    assert train(0, joined=1) == [] and train(None, joined=1, engines=1) == []


def test_an_epochs_end_that_is_not_worth_its_time_is_passed_over_and_a_join_is_not() -> None:
    line = Line()
    line.compare_from = 100
    assert train(None, joined=6, line=line) == [(6, "join")]


def test_the_coordinator_asks_for_no_comparison_that_costs_more_than_one_part_in_a_hundred() -> None:
    talk = running()
    tell(talk, SAME, SAME, tick=6, seconds=0.5, tick_seconds=0.25)
    told = [message for message in talk.said("2") if message["kind"] == "replicas"]
    tell(talk, SAME, SAME, tick=300, seconds=0.0001, tick_seconds=0.25)
    told += [message for message in talk.said("2") if message["kind"] == "replicas"]
    assert [message["compare_from"] for message in told] == [6 + 200, 300 + 4]


def test_checksums_that_cannot_be_taken_cost_the_comparison_and_not_the_training() -> None:
    def fails(state: State) -> list[tuple[str, str]]:
        raise MemoryError

    line = Line()
    schedule = Schedule(train_samples=16, test_samples=0, logical_workers=1, batch_size=4, epochs=3)
    comparing = Comparing(line, exported, fails, 1)
    comparing.committed(schedule.at(0), 1, generation=1, members=("1", "2"), name="1")
    comparing.wait()
    assert line.said == [{"kind": "note", "text": "no checksums at step 1: MemoryError"}]
    assert comparing.at_end(names=True) == {}
    assert line.said[1:] == [{"kind": "note", "text": "no checksums at the end: MemoryError"}]


# ── what an engine computes with ────────────────────────────────────────────────────────────────────────────────
def test_what_an_engine_computes_with_can_be_told_and_is_the_same_in_the_same_process() -> None:
    from edt_runner.pytorch.framework import FRAMEWORK

    found = FRAMEWORK.computing(on_device=False)
    assert json.loads(json.dumps(found)) == found == FRAMEWORK.computing(on_device=False)
    names = {"torch", "CPU capability", "instruction sets", "threads", "device", "deterministic algorithms", "oneDNN"}
    assert names <= set(found)


def test_a_processor_that_was_told_to_compute_otherwise_is_another_one() -> None:
    """ATEN_CPU_CAPABILITY is read when torch is loaded: another process."""
    text = "import json; from edt_runner.pytorch.framework import FRAMEWORK as it; "
    text += "print(json.dumps(it.computing(on_device=False)))"
    other = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        check=True,
        text=True,
    )
    from edt_runner.pytorch.framework import FRAMEWORK

    own, theirs = FRAMEWORK.computing(on_device=False), json.loads(other.stdout)
    assert theirs["CPU capability"] == "DEFAULT"
    assert unlike({"CPU capability": own["CPU capability"]}, theirs) == "CPU capability"


def test_a_coordinator_that_does_not_know_the_training_yet_names_a_mismatch_and_does_nothing_else() -> None:
    mind = Membership(recovering=True)
    for name, own in (("1", SAME), ("2", OTHER)):
        mind.replica(name, replica(["1", "2"], own), 0)
    assert [send.message["report"] for send in mind.take() if send.message["kind"] == "report"] == [
        "replicas-compared",
        "guarantee-ended",
    ]
    assert not mind.re_forming


# ── a driver or a coordinator that is started again ─────────────────────────────────────────────────────────────
def test_a_driver_that_is_started_again_does_not_call_its_checkpoint_a_position_at_which_all_were_equal() -> None:
    """It has the newest checkpoint of this attempt, which one engine may have written after they came to differ."""
    talk = running(on_mismatch="restore")
    tell(talk, SAME, SAME, tick=6)
    talk.mind.begin(talk.definition, 0, History(several=True, equal_at=6).to_json_object(), 8)
    tell(talk, SAME, OTHER, tick=9)
    for name in ("1", "2"):
        talk.stand(name, 9)
    (plan,) = [message for message in talk.said("2") if message["kind"] == "reform"]
    assert plan["restore"] == 6


@pytest.mark.parametrize(
    ("before", "equal_at"),
    [
        (History(), 8),
        (History(several=True, equal_at=8), 8),
        (History(several=True, equal_at=6), 6),  # they may have differed by then
    ],
)
def test_all_begin_equal_from_a_checkpoint_that_one_engine_wrote_or_at_which_several_were_compared(
    before: History, equal_at: int
) -> None:
    talk = Talk()
    talk.mind.begin(talk.definition, 0, before.to_json_object(), 8)
    assert talk.mind._replicas.history == before
    talk.come("1")
    talk.mind.received("1", talk.mind.current.number, 8, 0)
    assert talk.mind._replicas.history.equal_at == equal_at


def told_of(talk: Talk, name: str) -> list[dict[str, Any]]:
    """The histories that the driver, or an engine, was told."""
    return [dict(found["history"]) for found in talk.said(name) if found["kind"] == "replicas"]


def test_what_is_known_of_replicas_outlives_coordinator_and_driver_together_in_any_engine() -> None:
    known = History(compared=3, last_step=9, several=True, ended="replicas: they differ", equal_at=6, restored=True)
    mind = Membership(recovering=True)
    talk = Talk()
    talk.mind = mind
    there = {**NEW, "generation": 2, "members": ["1", "2"], "doing": "training", "announced": 2, "settled": 2}
    for name in ("1", "2"):
        mind.expect(name)
    mind.connect("1", {**there, "history": History(compared=2).to_json_object()}, 0)
    mind.connect("2", {**there, "history": known.to_json_object()}, 0)
    assert mind.phase is Phase.RUNNING
    messages = mind.take()
    for name in ("driver", "1", "2"):
        heard = [send.message["history"] for send in messages if send.to == name and send.message["kind"] == "replicas"]
        assert heard[-1] == known.to_json_object()
    mind.begin(talk.definition, 0, History(equal_at=6).to_json_object(), 6)
    assert mind._replicas.history == known


def test_the_end_of_the_guarantee_is_reported_once_more_by_a_coordinator_that_is_new_and_not_noted_again() -> None:
    before = History(ended="reduction: it depends on the number of engines").to_json_object()
    talk = Talk()
    talk.definition["exact"] = False
    for _ in range(2):
        talk.mind.begin(talk.definition, 0, before)
    talk.mind.guarantee_ended("reduction", "found once more")
    messages = talk.said()
    bodies = [message["body"] for message in messages if message.get("report") == "guarantee-ended"]
    assert bodies == [{"what": "reduction", "why": "it depends on the number of engines"}]
    assert not [message for message in messages if message["kind"] == "note"]


def test_an_engine_is_told_what_is_known_as_soon_as_it_has_the_state_and_when_it_comes_back_on_its_line() -> None:
    talk = Talk()
    talk.mind.begin(talk.definition, 0, History(compared=4, several=True).to_json_object())
    talk.come("1")
    talk.mind.received("1", talk.mind.current.number, 4, 0)
    assert told_of(talk, "1")[-1]["compared"] == 4
    talk.come("2")
    talk.switch()
    assert told_of(talk, "2")[-1]["compared"] == 4
    again = {**NEW, "generation": talk.mind.current.number, "members": ["1", "2"], "doing": "training"}
    talk.mind.connect("2", again, 0)
    assert told_of(talk, "2")[-1]["compared"] == 4


def test_checksums_of_the_states_that_engines_give_up_do_not_count_as_a_second_mismatch() -> None:
    """Those of the next step were on their way when the first ones were compared."""
    talk = running(on_mismatch="restore")
    tell(talk, SAME, SAME, tick=6)
    tell(talk, SAME, OTHER, tick=9)
    tell(talk, SAME, OTHER, tick=10)
    for name in ("1", "2"):
        talk.stand(name, 10)
    tell(talk, SAME, OTHER, tick=11)
    for name in ("1", "2"):
        talk.mind.reformed(name, talk.mind.round, 0)
    assert talk.mind.phase is Phase.RUNNING and not talk.mind.re_forming
    tell(talk, SAME, SAME, generation=talk.mind.current.number, tick=9)
    assert talk.mind._replicas.history.last_step == 9, "what they hold from then on is compared again"


@pytest.mark.parametrize("then", ["stop", "restore", "mark"])
@pytest.mark.parametrize("before_all_are_back", [True, False])
def test_a_mismatch_before_the_driver_has_begun_anew_is_answered_as_the_user_says_once_it_has(
    then: str, before_all_are_back: bool
) -> None:
    talk = Talk()
    talk.mind = Membership(recovering=True)
    there = {**NEW, "generation": 3, "members": ["1", "2"], "doing": "training", "announced": 3, "settled": 3}
    for name in ("1", "2"):
        talk.mind.expect(name)
    talk.mind.connect("1", there, 0)
    if before_all_are_back:
        tell(talk, SAME, OTHER)
    talk.mind.connect("2", there, 0)
    if not before_all_are_back:
        tell(talk, SAME, OTHER)
    assert talk.mind.phase is Phase.RUNNING and not talk.mind.re_forming
    talk.mind.begin({**talk.definition, "on_mismatch": then}, 0, History(equal_at=4).to_json_object())
    if then == "stop":
        assert talk.mind.phase is Phase.FAILED
        return
    for name in ("1", "2"):
        talk.stand(name, 9)
    (plan,) = [message for message in talk.said("2") if message["kind"] == "reform"]
    assert (plan["restore"], plan["mended"]) == (4 if then == "restore" else None, ["2"])


def test_the_end_of_the_guarantee_is_reported_again_in_the_same_words() -> None:
    """They are no news to a platform that has them."""
    talk = running()
    tell(talk, SAME, OTHER)
    first = next(body for kind, body in reports(talk) if kind == "guarantee-ended")
    known, talk = talk.mind._replicas.history, Talk()
    talk.mind.begin(talk.definition, 0, known.to_json_object())
    assert [body for kind, body in reports(talk) if kind == "guarantee-ended"] == [first]
