"""Taking reports: once each, in order, and what a late one may still say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edt_contract.reports import BODIES, ExitKind, Report, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import NoSuchNode, ReportForeign
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.exactness import MOST_CHARACTERS, Compared, Verdict
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import agents, history
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def progress(job: str, fence: int, seq: int, step: int) -> Report:
    body = {"step": step, "steps_total": 100, "workers": 2, "loss": 0.5}
    return Report(job, fence, "n1", seq, ReportKind.PROGRESS, 5.0, body)


def test_each_number_is_taken_once_in_order_and_not_behind_a_gap(stage: Stage) -> None:
    stage.node()
    job = stage.submit()
    stage.settle()
    node = stage.puppets[0]
    last = node.reported[-1].seq
    taken = agents.record_reports(
        stage.platform,
        "n1",
        [progress(job, 1, last + 2, 2), progress(job, 1, last + 1, 1), progress(job, 1, last + 4, 4)],
    )
    assert taken == {f"{job}/1": last + 2}
    assert stage.job(job).progress["step"] == 2
    assert agents.record_reports(stage.platform, "n1", [progress(job, 1, last + 1, 1)]) == {f"{job}/1": last + 2}
    assert stage.job(job).progress["step"] == 2


def test_all_reports_sent_again_change_nothing(stage: Stage) -> None:
    node = stage.node()
    a = stage.submit()
    stage.settle()
    b = stage.submit()
    stage.settle()
    node.end((b, 1), ExitKind.FINISHED)
    stage.settle()
    before = (stage.job(a), stage.job(b), history.timeline(stage.platform, viewer=stage.admin))
    agents.record_reports(stage.platform, "n1", node.reported)
    after = (stage.job(a), stage.job(b), history.timeline(stage.platform, viewer=stage.admin))
    assert after == before


def test_a_late_word_of_an_old_attempt_frees_its_slot_and_says_nothing_of_the_job(stage: Stage) -> None:
    first, second = stage.node("n1", slots=2, engines=2), stage.node("n2", slots=2, engines=2)
    job = stage.submit(workers=2)
    stage.settle()
    assert set(first.running) == {(job, 1)}
    look(stage.platform, stage.silence("n1"))
    look(stage.platform)
    stage.clock.pass_(FENCE_SECONDS)
    look(stage.platform)
    second.obey()
    first.report((job, 1), ReportKind.PROGRESS, step=99, workers=2)
    first.report((job, 1), ReportKind.ENGINES_KNOWN, engines=64)
    assert stage.job(job).progress == {}
    assert stage.job(job).engines == 2
    held = stage.holding()[job]
    first.end((job, 1), ExitKind.SCRIPT_ERROR, message="too late")
    assert stage.holding()[job] == held - 2
    view = stage.job(job)
    assert (view.state, view.fence, view.message) == (JobState.RUNNING, 2, None)


def test_reports_of_an_unknown_attempt_are_waved_through(stage: Stage) -> None:
    stage.node()
    unknown = [progress("edt-77", 3, 5, 1), progress("wmla-1", 1, 9, 1)]
    assert agents.record_reports(stage.platform, "n1", unknown) == {"edt-77/3": 5, "wmla-1/1": 9}


def test_a_node_speaks_for_itself_only(stage: Stage) -> None:
    stage.node()
    with pytest.raises(ReportForeign):
        agents.record_reports(stage.platform, "n1", [replace(progress("edt-1", 1, 1, 1), node="n2")])
    with pytest.raises(NoSuchNode):
        agents.assignments(stage.platform, "n9")


def test_an_odd_report_is_taken_and_does_no_harm(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    allocations = list(node.running[job, 1])
    for what in ReportKind:
        if what is not ReportKind.ATTEMPT_ENDED:
            node.report((job, 1), what)
            node.report(
                (job, 1), what, allocation="x", engines="many", workers=None, step="y", joined=3, pause_seconds="z"
            )
            node.report((job, 1), what, joined=allocations[:1], left=allocations[1:], pause_seconds=None)
            odd = {"loss": float("nan"), "what": "a\0b\udc80", "engines": 2**70, "step": -(2**70), "why": {1: (2,)}}
            node.report((job, 1), what, **odd)
    assert stage.job(job).state is JobState.RUNNING
    assert stage.holding() == {job: 4}


def test_a_report_we_stumble_over_stands_in_nobodys_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    node = stage.node()
    a, b = stage.submit(), stage.submit()
    stage.settle()

    def stumble(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.store.resizes.switched", stumble)
        node.report((a, 1), ReportKind.RESIZED, workers=2)
    node.report((a, 1), ReportKind.PROGRESS, step=7)
    assert stage.job(a).progress == {"step": 7}
    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.store.attempts.end_supervisor", stumble)
        node.report((a, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED)
        node.report((b, 1), ReportKind.PROGRESS, step=8)
    assert stage.job(a).state is JobState.RUNNING
    assert stage.job(b).progress == {"step": 8}
    agents.record_reports(stage.platform, "n1", node.reported)
    assert stage.job(a).state is JobState.FINISHED, "what says that processes are gone is never skipped"


ODD_BODIES = st.dictionaries(
    st.sampled_from(sorted({name for body in BODIES.values() for name in body.fields})),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([2**31, 2**31 - 1, 2**53 - 1, -(2**31), 2**63, 10**400, "x" * 3000, "\0", "\ud800"])
    | st.lists(st.integers() | st.text(max_size=3), max_size=5)
    | st.dictionaries(st.text(max_size=5), st.integers() | st.floats(), max_size=5),
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(st.tuples(st.sampled_from(ReportKind), ODD_BODIES), max_size=12))
def test_whatever_a_report_holds_it_is_taken_or_passed_over(
    stage: Stage, reports: list[tuple[ReportKind, dict[str, object]]]
) -> None:
    if not stage.puppets:
        stage.node()
        stage.submit()
        stage.settle()
    [node] = stage.puppets
    own = next(iter(node.running["edt-1", 1]))
    for kind, body in reports:
        if kind not in {ReportKind.ATTEMPT_ENDED, ReportKind.ENGINE_GONE}:  # with which its life would be over
            node.report(("edt-1", 1), kind, **{**body, "allocation": own, "lost": [own], "step": body.get("step")})
        ends_it = kind is ReportKind.ENGINE_GONE and body.get("allocation") == own  # its only engine, by chance
        if kind is not ReportKind.ATTEMPT_ENDED and not ends_it:
            node.report(("edt-1", 1), kind, **body)
    [*_, last] = [0, *(report.seq for report in node.reported)]
    assert agents.record_reports(stage.platform, "n1", node.reported) == {"edt-1/1": last}
    assert stage.job("edt-1").state is JobState.RUNNING
    history.events(stage.platform, "edt-1", viewer=stage.admin)


@pytest.mark.parametrize("value", [2**31, 2**63, -(10**30), 1e300, float("nan"), "x" * 9999, [], {}, True, None])
def test_whatever_the_last_word_holds_it_gives_the_slots_back(stage: Stage, value: object) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    [allocation, *_] = node.running[job, 1]
    body = dict.fromkeys(BODIES[ReportKind.ATTEMPT_ENDED].fields, value)
    gone = dict.fromkeys(BODIES[ReportKind.ENGINE_GONE].fields, value)
    node.report((job, 1), ReportKind.ENGINE_GONE, **{**gone, "allocation": allocation})
    assert stage.holding() == {job: 3}
    node.report((job, 1), ReportKind.ATTEMPT_ENDED, **body)
    assert stage.holding() == {}


def test_one_report_in_the_place_of_those_that_were_left_out_takes_all_their_numbers(stage: Stage) -> None:
    stage.node()
    job = stage.submit()
    stage.settle()
    last = stage.puppets[0].reported[-1].seq

    def left_out(first: object, seq: int, **counts: int) -> Report:
        body = {"first": first, "why": "there were too many of them", "counts": counts}
        return Report(job, 1, "n1", seq, ReportKind.REPORTS_LEFT_OUT, 5.0, body)

    def taken(*reports: Report) -> int:
        return agents.record_reports(stage.platform, "n1", reports)[f"{job}/1"]

    assert taken(left_out(last + 2, last + 9)) == last, "behind a gap nothing is taken"
    assert taken(left_out(last + 1, last + 9, restarted=9)) == last + 9
    assert taken(left_out(last + 5, last + 12)) == last + 12, "of which a part is known"
    assert taken(left_out("x", last + 20)) == last + 12
    assert taken(left_out(last + 99, last + 13)) == last + 13, "one that stands for later ones stands for itself"
    assert taken(progress(job, 1, last + 13, 3)) == last + 13
    messages = [event.message for event in history.events(stage.platform, job, viewer=stage.admin)]
    assert [message for message in messages if "left out" in message] == [
        "reports were left out, 9 of kind restarted: there were too many of them"
    ]


def test_checkpoints_that_nothing_comes_between_are_one_event_in_ten_minutes(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    for step in range(1, 100):
        node.report((job, 1), ReportKind.CHECKPOINTED, step=step, path="")
        stage.clock.pass_(10)
    steps = [
        e.data["step"] for e in history.events(stage.platform, job, viewer=stage.admin) if e.kind == "checkpointed"
    ]
    assert steps == [1, 62]
    assert stage.job(job).checkpoint_step == 99


def test_an_end_that_cannot_be_read_counts_as_lost(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.ATTEMPT_ENDED, reason="?")
    assert stage.job(job).state is JobState.PENDING
    assert stage.holding() == {}


def test_a_supervisors_last_word_gives_back_what_it_did_not_name(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED, digest="d1")
    assert stage.holding() == {}
    assert (stage.job(job).state, stage.job(job).digest) == (JobState.FINISHED, "d1")


def test_the_end_of_a_guarantee_is_shown_with_its_reason(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="cumsum", why="no deterministic kernel")
    exactness = stage.job(job).exactness
    assert (exactness.verdict, exactness.reason) == (Verdict.NOT_EXACT, "cumsum: no deterministic kernel")
    kinds = [event.kind for event in history.events(stage.platform, job, viewer=stage.admin)]
    assert kinds[-1] == "guarantee-ended"
    assert kinds.count("state") == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"allocations": [2], "certain": True}, "engine 2 on n1, slot 1 computed micro-batch 3 of step 40 with other"),
        ({"allocations": [1, 2]}, "these do not compute micro-batch 3 of step 40 with the same bits: engine 1 on n1"),
        ({"allocations": []}, "micro-batch 3 of step 40 was never computed twice with the same bits"),
        ({"allocations": [77], "certain": True}, "was never computed twice"),
    ],
)
def test_an_engine_that_computes_wrong_is_in_the_history_with_its_node_and_slot(
    stage: Stage, body: dict[str, object], words: str
) -> None:
    node = stage.node(slots=2)
    job = stage.submit(workers=2)
    stage.settle()
    node.report((job, 1), ReportKind.CORRUPTED, step=40, micro_batch=3, **body)
    event = history.events(stage.platform, job, viewer=stage.admin)[-1]
    assert event.kind == "corrupted" and words in event.message


class TestExactness:
    """What a job says of its result follows from what its engines told of comparisons."""

    def test_one_engine_throughout_is_not_compared_and_says_so(self, stage: Stage) -> None:
        node = stage.node(slots=1)
        job = stage.submit(workers=1)
        assert stage.job(job).exactness.reason == "It has not trained yet."
        stage.settle()
        node.end((job, 1), ExitKind.FINISHED, digest="d1")
        exactness = stage.job(job).exactness
        assert exactness.verdict is Verdict.NOT_COMPARED
        assert "one engine at a time" in exactness.reason

    def test_engines_that_were_never_compared_are_not_exact_and_the_step_is_named(self, stage: Stage) -> None:
        job, _ = _trained_by_two(stage)
        exactness = stage.job(job).exactness
        assert exactness.verdict is Verdict.NOT_COMPARED
        assert exactness.reason == "Engines joined at step 5; the engines have not been compared since."

    def test_engines_that_were_compared_and_were_equal_are_exact_without_an_event(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        before = history.events(stage.platform, job, viewer=stage.admin)
        for step in (6, 20):
            _compared(node, job, step)
        exactness = stage.job(job).exactness
        assert (exactness.verdict, exactness.comparisons, exactness.compared_step) == (Verdict.EXACT, 2, 20)
        assert "compared 2 times, last at step 20" in exactness.reason
        assert history.events(stage.platform, job, viewer=stage.admin) == before

    def test_an_engine_that_joins_takes_exactness_away_until_the_next_comparison(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        _compared(node, job, 20)
        _joins(stage, node, job, step=30)
        assert stage.job(job).exactness.verdict is Verdict.NOT_COMPARED
        _compared(node, job, 25, reason="interval")  # made before it came, told after
        assert stage.job(job).exactness.verdict is Verdict.NOT_COMPARED
        _compared(node, job, 30)
        assert stage.job(job).exactness.verdict is Verdict.NOT_COMPARED, "an epoch's end at its step was without it"
        _compared(node, job, 30, reason="join")
        assert stage.job(job).exactness.verdict is Verdict.EXACT

    def test_an_engine_whose_joining_is_told_after_its_comparison_changes_nothing(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        _compared(node, job, 40)
        _joins(stage, node, job, step=30)
        assert stage.job(job).exactness.verdict is Verdict.EXACT

    def test_engines_that_differ_are_an_event_with_the_first_difference(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        _compared(node, job, 6)
        _compared(node, job, 12, equal=False)
        assert stage.job(job).exactness.reason == "the engines' states differ at step 12"
        difference = "optimizer setting lr of group 0: 0.05 in engine 1, 0.1 in engine 2"
        body = {"what": "engine 2", "why": "has other settings", "engine": 2, "step": 12, "difference": difference}
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, **body)
        exactness = stage.job(job).exactness
        assert exactness.verdict is Verdict.NOT_EXACT
        first = f"(first difference in engine 2 at step 12: {difference})"
        assert exactness.reason == f"engine 2: has other settings {first}"
        events = history.events(stage.platform, job, viewer=stage.admin)
        assert [event.kind for event in events[-2:]] == ["replicas-compared", "guarantee-ended"]
        assert events[-1].data["difference"] == difference

    def test_once_not_exact_it_stays_so_with_its_first_reason(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="cumsum", why="no deterministic kernel")
        count = len(history.events(stage.platform, job, viewer=stage.admin))
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="cumsum", why="no deterministic kernel")
        _compared(node, job, 12, equal=False)
        _compared(node, job, 13)
        assert len(history.events(stage.platform, job, viewer=stage.admin)) == count, "what is known is no event"
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="other", why="reason", engine=2, step=14)
        exactness = stage.job(job).exactness
        assert (exactness.verdict, exactness.reason) == (Verdict.NOT_EXACT, "cumsum: no deterministic kernel")

    @pytest.mark.parametrize(
        ("step", "then"),
        [
            (30, Compared(1, 20, None)),  # the engine that joined at step 35 is undone with all after step 30
            (40, Compared(1, 20, 35)),  # a checkpoint of which nobody has heard: its node was lost
            (10, Compared(1, 10, None)),
            (0, Compared(1, None, None)),
        ],
    )
    def test_another_attempt_counts_on_from_where_it_begins(self, step: int, then: Compared) -> None:
        assert Compared(1, 20, 35).resumed(step) == then

    def test_a_second_engine_of_another_attempt_is_compared_anew(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        _compared(node, job, 20)
        node.bury((job, 1))
        node.joins_at = 30
        stage.clock.pass_(600)
        stage.settle()
        assert stage.job(job).fence == 2
        assert stage.job(job).exactness.verdict is Verdict.NOT_COMPARED, "the second engine of this attempt"
        node.report((job, 2), ReportKind.REPLICAS_COMPARED, step=31, engines=2, equal=True, reason="join")
        assert (stage.job(job).exactness.verdict, stage.job(job).exactness.comparisons) == (Verdict.EXACT, 2)

    def test_an_attempt_that_begins_again_has_nothing_that_was_compared(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        _compared(node, job, 20)
        node.bury((job, 1))
        node.joins_at = 0
        stage.clock.pass_(600)
        stage.settle()
        exactness = stage.job(job).exactness
        assert (exactness.verdict, exactness.comparisons, exactness.compared_step) == (Verdict.NOT_COMPARED, 1, None)

    def test_what_cannot_be_a_comparison_is_none_and_long_texts_are_cut(self, stage: Stage) -> None:
        job, node = _trained_by_two(stage)
        for odd in ({"engines": 1}, {"step": -1}, {"step": "6"}, {"equal": "yes"}, {"engines": None}):
            _compared(node, job, **{"step": 6, **odd})
        assert stage.job(job).exactness.comparisons == 0
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="w" * 10_000, why="y" * 10_000, difference="d" * 10_000)
        assert len(stage.job(job).exactness.reason) < 4 * MOST_CHARACTERS
        last = history.events(stage.platform, job, viewer=stage.admin)[-1]
        assert len(last.message) < 4 * MOST_CHARACTERS
        assert max(len(str(value)) for value in last.data.values()) <= MOST_CHARACTERS


def _trained_by_two(stage: Stage) -> tuple[str, Puppet]:
    """A job on two engines, of which the second has joined at step 5; and its node, which has a slot more."""
    node = stage.node(slots=3, engines=2)
    job = stage.submit(workers=2)
    stage.settle()
    return job, node


def _compared(node: Puppet, job: str, step: object, *, equal: object = True, **body: object) -> None:
    values = {"engines": 2, "reason": "epoch", **body}
    node.report((job, 1), ReportKind.REPLICAS_COMPARED, step=step, equal=equal, **values)


def _joins(stage: Stage, node: Puppet, job: str, step: int) -> None:
    """One engine is lost, and the one that takes its place joins at ``step``."""
    held = set(node.running[job, 1])
    node.joins_at = step
    node.gone((job, 1), max(held), ExitKind.LOST)
    stage.clock.pass_(600)
    stage.settle()
    assert len(set(node.running[job, 1]) - held) == 1
