"""Whether all engines hold the same: what they tell of it, when, and what the coordinator makes of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.members import Phase
from edt_runner.coordinator.regroup_plan import plan_regroup
from edt_runner.coordinator.replicas import compare, unlike
from edt_runner.driver import describe_replicas
from edt_runner.frameworks.flat import checksum
from edt_runner.protocol.data import (
    CatchUp,
    ComparisonReason,
    EngineResult,
    RegroupStatus,
    ReplicaChecksums,
    ReplicaHistory,
)
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    ChecksumsTaken,
    RefuseEngine,
    ReplicasChanged,
    SendStateToDriver,
)
from edt_runner.protocol.messages import Note, ReceiveStateFromEngine, ScriptFailed, TrainingReport
from support.talk import NEW, Talk, join_request, status

NAMES = ("optimizer setting lr of group 0", "parameter weight")
SAME = ("0.1", "ab12")


def replica(
    members: Sequence[str], values: Sequence[str] = SAME, *, generation: int = 3, offset: int = 6, **more: Any
) -> ChecksumsTaken:
    fields = {"seconds": 0.001, "seconds_per_offset": 0.1, **more}
    checksums = ReplicaChecksums(tuple(values), NAMES)
    return ChecksumsTaken(
        generation, tuple(members), offset, offset, ComparisonReason.EPOCH, checksums=checksums, **fields
    )


def reports(talk: Talk) -> list[tuple[str, Mapping[str, Any]]]:
    return [(found.report, found.body) for found in talk.sent("own supervisor") if isinstance(found, TrainingReport)]


def report_checksums(talk: Talk, *values: Sequence[str], **more: Any) -> None:
    """Engines 1, 2, … tell these."""
    members = [str(index + 1) for index in range(len(values))]
    for name, own in zip(members, values, strict=True):
        talk.coordinator.checksums_taken(name, replica(members, own, **more), talk.now)


def running(engines: int = 2, **definition: Any) -> Talk:
    talk = Talk()
    talk.definition = replace(talk.definition, **definition)
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


@pytest.mark.parametrize("bit", [0, 31, 32, 61, 62, 63])
def test_a_checksum_sees_one_flipped_bit_in_any_place_of_a_word(bit: int) -> None:
    words = np.random.default_rng(bit).integers(0, 1 << 63, 1024 * 70, dtype=np.uint64)
    first = checksum(words.view(np.uint8))
    for place in range(0, len(words), 5003):
        words[place] ^= np.uint64(1 << bit)
        assert checksum(words.view(np.uint8)) != first
        words[place] ^= np.uint64(1 << bit)


def test_two_blocks_in_each_others_place_are_another_checksum() -> None:
    block = 64 * 8192
    data = np.random.default_rng(0).integers(0, 256, 4 * block, dtype=np.uint8)
    other = np.concatenate([data[block : 2 * block], data[:block], data[2 * block :]])
    assert checksum(data) != checksum(other)


# ── comparing ───────────────────────────────────────────────────────────────────────────────────────────────────
def checksums(*values: Sequence[str]) -> dict[str, ReplicaChecksums]:
    return {str(index): ReplicaChecksums(tuple(own), NAMES) for index, own in enumerate(values, 3)}


def test_the_first_thing_that_differs_is_named_with_both_values() -> None:
    found = compare(["3", "4", "5"], checksums(SAME, SAME, ("0.05", "cd34")))
    assert found == (("5",), "optimizer setting lr of group 0: 0.1 in engine 3, 0.05 in engine 5")
    assert compare(["3", "4"], checksums(SAME, SAME)) == ((), "")


def test_engines_with_other_tensors_differ() -> None:
    differing, what = compare(["3", "4"], checksums(SAME, (*SAME, "ef56")))
    assert differing == ("4",) and "2 in engine 3, 3 in engine 4" in what


def test_equal_replicas_are_reported_and_nothing_else_happens() -> None:
    talk = running()
    report_checksums(talk, SAME, SAME)
    assert reports(talk) == [("replicas-compared", {"step": 6, "engines": 2, "equal": True, "reason": "epoch"})]
    assert not talk.coordinator.regrouping


def test_nothing_is_concluded_before_all_have_told() -> None:
    talk = running(3)
    for name in ("1", "2"):
        talk.coordinator.checksums_taken(name, replica(["1", "2", "3"], SAME if name == "1" else ("0", "0")), 0)
    assert reports(talk) == []


def test_what_one_never_told_is_forgotten_when_a_later_step_is_compared() -> None:
    """Engine 3 died; the others have found together, and compare later."""
    talk = running(3)
    talk.coordinator.checksums_taken("1", replica(["1", "2", "3"]), 0)
    talk.coordinator.checksums_taken("2", replica(["1", "2", "3"]), 0)
    report_checksums(talk, SAME, SAME, generation=4, offset=9)
    assert [body["step"] for _, body in reports(talk)] == [9]
    talk.coordinator.checksums_taken("3", replica(["1", "2", "3"], ("0", "0")), 0)
    assert reports(talk) == [] and not talk.coordinator.regrouping


def test_checksums_of_different_steps_are_not_compared() -> None:
    talk = running()
    talk.coordinator.checksums_taken("1", replica(["1", "2"], offset=6), 0)
    talk.coordinator.checksums_taken("2", replica(["1", "2"], ("0.2", "x"), offset=7), 0)
    assert reports(talk) == []


def test_an_epochs_end_at_which_some_compare_all_and_others_settings_alone_is_no_mismatch() -> None:
    """The offset from which all is compared again has reached them on both sides of that end."""
    talk = running()
    talk.coordinator.checksums_taken("1", replica(["1", "2"]), 0)
    settings = replace(
        replica(["1", "2"]), reason=ComparisonReason.SETTINGS, checksums=ReplicaChecksums(SAME[:1], NAMES[:1])
    )
    talk.coordinator.checksums_taken("2", settings, 0)
    assert reports(talk) == [] and not talk.coordinator.regrouping
    report_checksums(talk, SAME, SAME, offset=9)
    assert [body["equal"] for _, body in reports(talk)] == [True]


def test_comparisons_that_nobody_completes_do_not_pile_up() -> None:
    talk = running()
    for offset in range(1000):
        talk.coordinator.checksums_taken("1", replica(["1", "2"], offset=offset), 0)
    assert len(talk.coordinator.replicas._waiting) < 10


# ── when they differ ────────────────────────────────────────────────────────────────────────────────────────────
OTHER = ("0.05", "ab12")


def test_engines_that_differ_are_named_once_and_take_the_first_ones_state() -> None:
    talk = running(3)
    report_checksums(talk, SAME, OTHER, SAME)
    (compared, ended) = reports(talk)
    assert compared == ("replicas-compared", {"step": 6, "engines": 3, "equal": False, "reason": "epoch"})
    assert ended[0] == "guarantee-ended" and (ended[1]["engine"], ended[1]["step"]) == (2, 6)
    assert ended[1]["difference"] == "optimizer setting lr of group 0: 0.1 in engine 1, 0.05 in engine 2"
    for name in ("1", "2", "3"):
        talk.stand(name, 6)
    plan = talk.only("1", ApplyRegroupPlan).plan
    assert (plan.repair_source, plan.repaired, plan.behind) == ("1", ("2",), ())
    for name in ("1", "2", "3"):
        talk.coordinator.regrouped(name, talk.coordinator.members.newest_regroup, 0)
    assert not talk.coordinator.regrouping
    report_checksums(talk, SAME, OTHER, SAME, generation=5, offset=12)
    assert [kind for kind, _ in reports(talk)] == ["replicas-compared"], "the guarantee ends once"
    assert talk.coordinator.regrouping, "and states are made equal again"


def test_whoever_dies_while_states_are_made_equal_leaves_that_to_the_next_regroup() -> None:
    talk = running(3)
    report_checksums(talk, SAME, OTHER, SAME)
    for name in ("1", "2", "3"):
        talk.stand(name, 6)
    talk.coordinator.engine_gone("3", 0)
    talk.sent()
    talk.stand("1", 6)
    talk.stand("2", 6)
    plan = talk.only("2", ApplyRegroupPlan).plan
    assert (plan.members, plan.repair_source, plan.repaired) == (("1", "2"), "1", ("2",))


def test_what_is_found_while_engines_find_together_is_mended_afterwards() -> None:
    talk = running(3)
    talk.coordinator.engine_gone("3", 0)
    for name in ("1", "2"):
        talk.stand(name, 6)
    report_checksums(talk, SAME, OTHER)
    for name in ("1", "2"):
        talk.coordinator.regrouped(name, talk.coordinator.members.newest_regroup, 0)
    assert talk.coordinator.regrouping
    for name in ("1", "2"):
        talk.stand(name, 6)
    assert [m.plan.repaired for m in talk.sent("1") if isinstance(m, ApplyRegroupPlan)] == [(), ("2",)]


def test_a_mismatch_ends_the_training_where_its_user_says_stop() -> None:
    talk = running(on_mismatch="stop")
    report_checksums(talk, SAME, OTHER)
    failed = talk.only("driver", ScriptFailed)
    assert "lr of group 0: 0.1 in engine 1, 0.05 in engine 2" in failed.message


def test_all_go_back_to_where_they_were_known_to_be_equal_and_the_second_time_it_is_over() -> None:
    talk = running(on_mismatch="restore")
    report_checksums(talk, SAME, SAME, offset=6)
    report_checksums(talk, SAME, OTHER, offset=9)
    for name in ("1", "2"):
        talk.stand(name, 9)
    plan = talk.only("2", ApplyRegroupPlan).plan
    assert (plan.restore, plan.repair_source, plan.repaired) == (6, "1", ("2",))
    for name in ("1", "2"):
        talk.coordinator.regrouped(name, talk.coordinator.members.newest_regroup, 0)
    assert not talk.coordinator.regrouping
    report_checksums(talk, SAME, OTHER, generation=5, offset=9)
    assert talk.coordinator.members.phase is Phase.FAILED


def test_a_mismatch_at_the_end_is_named_and_the_first_engines_weights_are_the_result() -> None:
    talk = running()
    talk.finished("1", EngineResult(ReplicaChecksums(SAME, NAMES), "d", 10))
    talk.finished("2", EngineResult(ReplicaChecksums(OTHER)))
    messages = talk.sent()
    found = [message.report for message in messages if isinstance(message, TrainingReport)]
    assert found == ["replicas-compared", "guarantee-ended"]
    assert {SendStateToDriver, ReceiveStateFromEngine} <= {type(message) for message in messages}


def test_whatever_ends_the_guarantee_ends_a_training_that_must_be_exact() -> None:
    talk = running(require_exact=True)
    talk.coordinator.replicas.end_guarantee("running_mean", "a buffer that cannot be combined")
    failed = talk.only("driver", ScriptFailed)
    why = "running_mean: a buffer that cannot be combined"
    assert failed.message == f"require_exact=True, and the result is no longer exact because of {why}"


# ── unlike engines ──────────────────────────────────────────────────────────────────────────────────────────────
ONE, TWO = {"threads": 1, "CPU capability": "AVX2"}, {"threads": 2, "CPU capability": "AVX2"}


def comes(talk: Talk, name: str, computing: Mapping[str, Any]) -> None:
    talk.expect(name)
    talk.coordinator.engine_connected(name, replace(NEW, computing=computing), talk.now)
    talk.coordinator.join_request(name, join_request(talk.coordinator.members.newest_regroup), talk.now)


def begun(computing: Mapping[str, Any], **definition: Any) -> Talk:
    """A training of engine 1."""
    talk = Talk()
    talk.definition = replace(talk.definition, **definition)
    talk.begin()
    comes(talk, "1", computing)
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 0, 0)
    talk.sent()
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
    assert talk.coordinator.change is None
    assert talk.only("2", RefuseEngine).why == "require_exact=True, and threads: 1 in engine 1, 2 in engine 2"
    talk.coordinator.engine_gone("2", 0)
    assert talk.coordinator.members.phase is Phase.RUNNING
    comes(talk, "3", ONE)
    assert talk.coordinator.change is not None and talk.coordinator.change.joining == ("3",)


@pytest.mark.parametrize("required", [False, True])
def test_a_checkpoint_of_an_unlike_machine_ends_the_guarantee_or_the_job(required: bool) -> None:
    talk = Talk()
    talk.definition = replace(talk.definition, require_exact=required)
    talk.begin(ReplicaHistory(computing=ONE, equal_at=4))
    comes(talk, "1", TWO)
    if required:
        assert talk.coordinator.members.phase is Phase.FAILED
        return
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 4, 0)
    (_, body) = next(found for found in reports(talk) if found[0] == "guarantee-ended")
    assert body["difference"] == "threads: 1 in the engines before, 2 in engine 1"


# ── who gives its state to whom ─────────────────────────────────────────────────────────────────────────────────
def test_an_engine_that_is_distrusted_keeps_no_sums_and_gives_no_state() -> None:
    there = {
        "1": RegroupStatus(5, False, micro_batches=4),
        "2": RegroupStatus(5, True, ((0, 2),), micro_batches=4),
        "3": RegroupStatus(4, True, micro_batches=4),
    }
    plan = plan_regroup(("1", "2", "3"), there, distrusted={"2"})
    assert (plan.catch_up, plan.repair_source, plan.repaired) == (CatchUp.REDUCED, "1", ("2",))
    assert plan.recomputed == 4
    there["2"] = RegroupStatus(5, False, micro_batches=4)
    plan = plan_regroup(("1", "2", "3"), there, distrusted={"2"})
    assert (plan.catch_up, plan.sources) == (CatchUp.STATE, ("1",))


def test_where_only_distrusted_engines_are_in_front_the_first_of_them_is_the_norm() -> None:
    there = {
        "1": RegroupStatus(4, True, micro_batches=4),
        "2": RegroupStatus(5, False, micro_batches=4),
        "3": RegroupStatus(5, False, micro_batches=4),
    }
    plan = plan_regroup(("1", "2", "3"), there, distrusted={"2", "3"})
    assert (plan.catch_up, plan.sources, plan.repair_source, plan.repaired) == (CatchUp.STATE, ("2",), "2", ("3",))


def test_without_distrust_nobody_gives_anything() -> None:
    plan = plan_regroup(
        ("1", "2"), {"1": RegroupStatus(5, True, micro_batches=4), "2": RegroupStatus(5, True, micro_batches=4)}
    )
    assert (plan.repair_source, plan.repaired, plan.restore) == ("", (), None)


# ── what is said at the end ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("history", "words"),
    [
        (ReplicaHistory(), "never compared: one engine trained at a time"),
        (
            ReplicaHistory(several=True),
            "never compared, though several engines trained (no comparison came to its end)",
        ),
        (ReplicaHistory(several=True, compared=1, last_step=9), "compared once, last at step 9: they were equal"),
        (ReplicaHistory(compared=3, ended="threads: unlike"), "not exact because of threads: unlike"),
    ],
)
def test_a_training_ends_with_what_is_true_of_its_replicas(history: ReplicaHistory, words: str) -> None:
    assert words in describe_replicas(history, wanted=True)
    assert "compare_interval=0" in describe_replicas(ReplicaHistory(several=True), wanted=False)


def test_a_fast_reduction_is_said_to_be_not_exact_from_the_beginning() -> None:
    ended = {}
    for exact in (True, False):
        talk = Talk()
        talk.begin(exact=exact)
        ended[exact] = [body for kind, body in reports(talk) if kind == "guarantee-ended"]
    assert ended[True] == []
    (body,) = ended[False]
    assert body["what"] == "reduction" and "depends on the number of engines" in body["why"]


def test_a_coordinator_that_is_new_goes_on_with_what_the_driver_knows() -> None:
    before = ReplicaHistory(
        compared=4, last_step=12, several=True, ended="x: y", equal_at=12, restored=True, computing=ONE
    )
    talk = running()
    talk.begin(before)
    assert talk.coordinator.replicas.history == before


# ── what a comparison may cost ──────────────────────────────────────────────────────────────────────────────────
def test_the_coordinator_asks_for_no_comparison_that_costs_more_than_one_part_in_a_hundred() -> None:
    talk = running()
    report_checksums(talk, SAME, SAME, offset=6, seconds=0.5, seconds_per_offset=0.25)
    changes = [message for message in talk.sent("2") if isinstance(message, ReplicasChanged)]
    report_checksums(talk, SAME, SAME, offset=300, seconds=0.0001, seconds_per_offset=0.25)
    changes += [message for message in talk.sent("2") if isinstance(message, ReplicasChanged)]
    assert [message.compare_from for message in changes] == [6 + 200, 300 + 4]


# ── what an engine computes with ────────────────────────────────────────────────────────────────────────────────
def test_what_an_engine_computes_with_can_be_told_and_is_the_same_in_the_same_process() -> None:
    from edt_runner.frameworks.pytorch import FRAMEWORK

    found = FRAMEWORK.computing(on_device=False)
    assert json.loads(json.dumps(found)) == found == FRAMEWORK.computing(on_device=False)
    names = {"torch", "CPU capability", "instruction sets", "threads", "device", "deterministic algorithms", "oneDNN"}
    assert names <= set(found)


def test_a_processor_that_was_told_to_compute_otherwise_is_another_one() -> None:
    """ATEN_CPU_CAPABILITY is read when torch is loaded: another process."""
    text = "import json; from edt_runner.frameworks.pytorch import FRAMEWORK as it; "
    text += "print(json.dumps(it.computing(on_device=False)))"
    other = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        check=True,
        text=True,
    )
    from edt_runner.frameworks.pytorch import FRAMEWORK

    own, theirs = FRAMEWORK.computing(on_device=False), json.loads(other.stdout)
    assert theirs["CPU capability"] == "DEFAULT"
    assert unlike({"CPU capability": own["CPU capability"]}, theirs) == "CPU capability"


def test_a_coordinator_that_does_not_know_the_training_yet_names_a_mismatch_and_does_nothing_else() -> None:
    coordinator = Coordinator(recovering=True)
    for name, own in (("1", SAME), ("2", OTHER)):
        coordinator.checksums_taken(name, replica(["1", "2"], own), 0)
    messages = [send.message for send in coordinator.members.take_sends()]
    assert [message.report for message in messages if isinstance(message, TrainingReport)] == [
        "replicas-compared",
        "guarantee-ended",
    ]
    assert not coordinator.regrouping


# ── a driver or a coordinator that is started again ─────────────────────────────────────────────────────────────
def test_a_driver_that_is_started_again_does_not_call_its_checkpoint_a_position_at_which_all_were_equal() -> None:
    """It has the newest checkpoint of this attempt, which one engine may have written after they came to differ."""
    talk = running(on_mismatch="restore")
    report_checksums(talk, SAME, SAME, offset=6)
    talk.begin(ReplicaHistory(several=True, equal_at=6), 8)
    report_checksums(talk, SAME, OTHER, offset=9)
    for name in ("1", "2"):
        talk.stand(name, 9)
    plan = talk.only("2", ApplyRegroupPlan).plan
    assert plan.restore == 6


@pytest.mark.parametrize(
    ("before", "equal_at"),
    [
        (ReplicaHistory(), 8),
        (ReplicaHistory(several=True, equal_at=8), 8),
        (ReplicaHistory(several=True, equal_at=6), 6),  # they may have differed by then
    ],
)
def test_all_begin_equal_from_a_checkpoint_that_one_engine_wrote_or_at_which_several_were_compared(
    before: ReplicaHistory, equal_at: int
) -> None:
    talk = Talk()
    talk.begin(before, 8)
    assert talk.coordinator.replicas.history == before
    talk.come("1")
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 8, 0)
    assert talk.coordinator.replicas.history.equal_at == equal_at


def histories_of(talk: Talk, name: str) -> list[ReplicaHistory]:
    """The histories that the driver, or an engine, was told."""
    return [found.history for found in talk.sent(name) if isinstance(found, ReplicasChanged)]


def test_what_is_known_of_replicas_outlives_coordinator_and_driver_together_in_any_engine() -> None:
    known = ReplicaHistory(
        compared=3, last_step=9, several=True, ended="replicas: they differ", equal_at=6, restored=True
    )
    talk = Talk()
    talk.coordinator = Coordinator(recovering=True)
    there = status(2, "1", "2", settled=2)
    talk.expect("1", "2")
    talk.coordinator.engine_connected("1", replace(there, history=ReplicaHistory(compared=2)), 0)
    talk.coordinator.engine_connected("2", replace(there, history=known), 0)
    assert talk.coordinator.members.phase is Phase.RUNNING
    sends = talk.coordinator.members.take_sends()
    for name in ("driver", "1", "2"):
        found = [send.message for send in sends if send.to == name and isinstance(send.message, ReplicasChanged)]
        assert found[-1].history == known
    talk.begin(ReplicaHistory(equal_at=6), 6)
    assert talk.coordinator.replicas.history == known


def test_the_end_of_the_guarantee_is_reported_once_more_by_a_coordinator_that_is_new_and_not_noted_again() -> None:
    before = ReplicaHistory(ended="reduction: it depends on the number of engines")
    talk = Talk()
    talk.definition = replace(talk.definition, exact=False)
    for _ in range(2):
        talk.begin(before)
    talk.coordinator.replicas.end_guarantee("reduction", "found once more")
    messages = talk.sent()
    bodies = [
        message.body
        for message in messages
        if isinstance(message, TrainingReport) and message.report == "guarantee-ended"
    ]
    assert bodies == [{"what": "reduction", "why": "it depends on the number of engines"}]
    assert not [message for message in messages if isinstance(message, Note)]


def test_an_engine_is_told_what_is_known_as_soon_as_it_has_the_state_and_when_it_comes_back_on_its_line() -> None:
    talk = Talk()
    talk.begin(ReplicaHistory(compared=4, several=True))
    talk.come("1")
    talk.coordinator.state_received("1", talk.coordinator.members.current.number, 4, 0)
    assert histories_of(talk, "1")[-1].compared == 4
    talk.come("2")
    talk.switch()
    assert histories_of(talk, "2")[-1].compared == 4
    talk.coordinator.engine_connected("2", status(talk.coordinator.members.current.number, "1", "2"), 0)
    assert histories_of(talk, "2")[-1].compared == 4


def test_checksums_of_the_states_that_engines_give_up_do_not_count_as_a_second_mismatch() -> None:
    """Those of the next step were on their way when the first ones were compared."""
    talk = running(on_mismatch="restore")
    report_checksums(talk, SAME, SAME, offset=6)
    report_checksums(talk, SAME, OTHER, offset=9)
    report_checksums(talk, SAME, OTHER, offset=10)
    for name in ("1", "2"):
        talk.stand(name, 10)
    report_checksums(talk, SAME, OTHER, offset=11)
    for name in ("1", "2"):
        talk.coordinator.regrouped(name, talk.coordinator.members.newest_regroup, 0)
    assert talk.coordinator.members.phase is Phase.RUNNING and not talk.coordinator.regrouping
    report_checksums(talk, SAME, SAME, generation=talk.coordinator.members.current.number, offset=9)
    assert talk.coordinator.replicas.history.last_step == 9, "what they hold from then on is compared again"


@pytest.mark.parametrize("then", ["stop", "restore", "mark"])
@pytest.mark.parametrize("before_all_are_back", [True, False])
def test_a_mismatch_before_the_driver_has_begun_anew_is_answered_as_the_user_says_once_it_has(
    then: str, before_all_are_back: bool
) -> None:
    talk = Talk()
    talk.coordinator = Coordinator(recovering=True)
    there = status(3, "1", "2", settled=3)
    for name in ("1", "2"):
        talk.expect(name)
    talk.coordinator.engine_connected("1", there, 0)
    if before_all_are_back:
        report_checksums(talk, SAME, OTHER)
    talk.coordinator.engine_connected("2", there, 0)
    if not before_all_are_back:
        report_checksums(talk, SAME, OTHER)
    assert talk.coordinator.members.phase is Phase.RUNNING and not talk.coordinator.regrouping
    talk.begin(ReplicaHistory(equal_at=4), on_mismatch=then)
    if then == "stop":
        assert talk.coordinator.members.phase is Phase.FAILED
        return
    for name in ("1", "2"):
        talk.stand(name, 9)
    plan = talk.only("2", ApplyRegroupPlan).plan
    assert (plan.restore, plan.repaired) == (4 if then == "restore" else None, ("2",))


def test_the_end_of_the_guarantee_is_reported_again_in_the_same_words() -> None:
    """They are no news to a platform that has them."""
    talk = running()
    report_checksums(talk, SAME, OTHER)
    first = next(body for kind, body in reports(talk) if kind == "guarantee-ended")
    known, talk = talk.coordinator.replicas.history, Talk()
    talk.begin(known)
    assert [body for kind, body in reports(talk) if kind == "guarantee-ended"] == [first]
