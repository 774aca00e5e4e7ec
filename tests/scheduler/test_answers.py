"""Why a job waits or has as many slots, and that every change which is suggested does what it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_scheduler.answers.changes import (
    ANY,
    Change,
    JobResumed,
    JobStopped,
    JobWith,
    MoreSlots,
    NewJob,
    NodeLess,
    NodeOpened,
    QueueWith,
    changed,
    said,
)
from edt_scheduler.answers.expected import PastError
from edt_scheduler.answers.settling import settled
from edt_scheduler.answers.sight import Sight
from edt_scheduler.answers.suggestions import Suggestion
from edt_scheduler.answers.verdicts import Verdict
from edt_scheduler.answers.whatif import Effect, what_if
from edt_scheduler.answers.why import Explained, WhyNotMore, explained
from edt_scheduler.errors import ChangeInvalid
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import bare, carried_out
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Blocking, Job, Node, Phase, State

POINTS = (Point(1, 1, 1.0), Point(2, 1, 0.52), Point(4, 1, 0.27))


def node(name: str = "n1", slots: int = 4, health: Health = Health.UP, **others: object) -> Node:
    return Node(name, slots, slots, health, **others)  # type: ignore[arg-type]


def elastic(number: int, most: int = 4, **others: object) -> Job:
    """An elastic job that waits, with a user of its own, of which enough is known."""
    given: dict[str, object] = {"user": f"u{number}", "points": POINTS, "steps_left": 1000.0, "engines": 4}
    return Job(f"edt-{number}", number, most, Phase.WAITING, **{**given, **others})  # type: ignore[arg-type]


def gang(number: int, slots: int, **others: object) -> Job:
    whole = {"gang": True, "min": slots, "engines": None, "steps_left": None, "points": ()}
    return elastic(number, slots, **{**whole, **others})


def state(nodes: list[Node], *jobs: Job, queues: tuple[Queue, ...] = ()) -> State:
    return State(1000.0, tuple(nodes), jobs, queues)


def after(found: State, *jobs: Job) -> State:
    """The state once what is there has its slots, and these jobs are submitted then."""
    return replace(settled(found).state, jobs=(*settled(found).state.jobs, *jobs))


def why(found: State, name: str, sight: Sight | None = None) -> Explained:
    return explained(found, name, sight=sight or Sight(), enough=lambda: False)


def assert_helps(found: State, name: str, suggestion: Suggestion) -> None:
    """A suggested change is made, plans are carried out one by one, and the job has what was promised."""
    now = changed(bare(found), suggestion.change)
    for _ in range(suggestion.plans):
        now = carried_out(now, plan(now))
    held = {job.id: job.held for job in now.jobs}
    assert held[name] > 0
    for _ in range(4):
        now = carried_out(now, plan(now))
    assert {job.id: job.held for job in now.jobs}[name] == suggestion.slots


def kinds(found: Explained) -> Mapping[type[Change], list[Suggestion]]:
    made: dict[type[Change], list[Suggestion]] = {}
    for each in found.changes:
        made.setdefault(type(each.change), []).append(each)
    return made


class TestOfAWaitingJob:
    def test_it_is_told_its_rank_what_blocks_it_by_name_and_what_each_node_says(self) -> None:
        found = after(
            state([node(), node("n2", health=Health.CORDONED), node("n3", health=Health.LOST)], gang(1, 4)), gang(2, 3)
        )
        told = why(found, "edt-2")
        assert told.waits is not None
        assert told.waits.rank == 1
        assert told.waits.waiting == 1
        assert told.waits.need == 3
        assert [holder.job for holder in told.waits.by] == ["edt-1"]
        assert told.waits.by[0].nodes == ("n1",)
        assert told.nodes is not None
        assert {each.node: each.verdict for each in told.nodes.items} == {
            "n1": Verdict.FULL,
            "n2": Verdict.CORDONED,
            "n3": Verdict.LOST,
        }
        assert told.nodes.items[0].jobs == ("edt-1",)
        assert told.sentence.startswith("edt-2 waits: ")

    @pytest.mark.parametrize(
        ("there", "wanted", "verdict"),
        [
            (node(device=Device.CPU), elastic(1, device=Device.GPU), Verdict.DEVICE),
            (node(device=Device.GPU, model="a100"), elastic(1, device=Device.GPU, models=("h100",)), Verdict.MODEL),
            (node(), elastic(1, image="registry/image"), Verdict.CONTAINERS),
            (node(slots=2), gang(1, 4, unit=4), Verdict.SMALL),
            (node(slots=2, alone=True), gang(1, 4, unit=1), Verdict.ALONE),
            (node(health=Health.DRAINING), elastic(1), Verdict.DRAINING),
        ],
    )
    def test_a_node_that_can_never_take_it_says_why(self, there: Node, wanted: Job, verdict: Verdict) -> None:
        told = why(state([there], wanted), "edt-1")
        assert told.nodes is not None
        assert told.nodes.items[0].verdict is verdict
        assert told.nodes.items[0].sentence

    def test_slots_that_are_free_but_not_for_it_are_named_with_the_reason(self) -> None:
        told = why(state([node()], elastic(1, not_before=2000.0)), "edt-1")
        assert told.waits is not None
        assert told.waits.rule == Blocking.COOLDOWN
        assert told.waits.not_before == 2000.0
        assert told.nodes is not None
        assert told.nodes.items[0].verdict is Verdict.KEPT
        assert "back-off" in told.nodes.items[0].sentence
        assert told.expected is not None
        assert told.expected.start == pytest.approx(2000.0, abs=2)

    def test_a_job_that_starts_with_the_present_plan_needs_no_change(self) -> None:
        told = why(state([node()], elastic(1)), "edt-1")
        assert told.waits is not None
        assert (told.waits.rule, told.changes) == ("", ())
        assert told.nodes is not None
        assert told.nodes.items[0].verdict is Verdict.FREE
        assert told.expected is not None
        assert told.expected.start == 1000.0

    def test_a_job_for_which_slots_are_being_vacated_is_told_so(self) -> None:
        found = after(state([node()], elastic(1)), elastic(2))
        told = why(found, "edt-2")
        assert told.waits is not None
        assert told.waits.rule == Blocking.VACATING
        assert "as soon as" in told.waits.sentence
        assert told.changes == ()

    def test_other_users_jobs_are_counted_and_not_named(self) -> None:
        found = after(state([node()], gang(1, 2), gang(3, 2)), gang(2, 3))
        told = why(found, "edt-2", Sight(frozenset({"edt-2"})))
        assert told.waits is not None
        assert told.waits.by == ()
        assert told.waits.hidden.jobs == 2
        assert told.waits.hidden.slots == 4
        assert told.nodes is not None
        assert (told.nodes.items[0].jobs, told.nodes.items[0].hidden.jobs) == ((), 2)
        assert "edt-1" not in repr(told)
        assert "edt-3" not in repr(told)


class TestWhatWouldStartIt:
    """Every suggestion is applied, and the job starts on as many slots after as many plans as were promised."""

    @pytest.fixture
    def full(self) -> State:
        """Two gangs hold three of four slots, and a third one waits. A node is cordoned."""
        return after(state([node(), node("n2", 2, Health.CORDONED)], gang(1, 2), gang(2, 1)), gang(3, 3))

    def test_each_suggestion_for_a_gang_works(self, full: State) -> None:
        told = why(full, "edt-3")
        made = kinds(told)
        assert made.keys() == {MoreSlots, JobWith, NodeOpened, JobStopped}
        for each in told.changes:
            assert_helps(full, "edt-3", each)

    def test_of_numbers_the_smallest_change_is_found(self, full: State) -> None:
        made = kinds(why(full, "edt-3"))
        (more,) = made[MoreSlots]
        assert isinstance(more.change, MoreSlots)
        fewer = (
            changed(bare(full), replace(more.change, slots=more.change.slots - 1)) if more.change.slots > 1 else full
        )
        assert settled(fewer).held("edt-3") == 0

    def test_a_cordoned_node_that_would_be_enough_is_named(self) -> None:
        found = after(state([node(), node("n2", 4, Health.CORDONED)], gang(1, 4)), gang(2, 3))
        told = why(found, "edt-2")
        (opened,) = kinds(told)[NodeOpened]
        assert opened.change == NodeOpened("n2")
        assert (opened.slots, opened.plans) == (3, 1)
        for each in told.changes:
            assert_helps(found, "edt-2", each)

    def test_stopping_one_job_that_is_enough_is_named_and_no_other(self) -> None:
        found = after(state([node(slots=5)], gang(1, 1), gang(2, 4)), gang(3, 4))
        told = why(found, "edt-3")
        assert [each.change for each in kinds(told)[JobStopped]] == [JobStopped("edt-2")]

    def test_only_jobs_that_the_viewer_sees_are_suggested_to_be_stopped(self) -> None:
        found = after(state([node()], gang(1, 4)), gang(2, 4))
        assert JobStopped in kinds(why(found, "edt-2"))
        assert JobStopped not in kinds(why(found, "edt-2", Sight(frozenset({"edt-2"}))))

    def test_another_kind_or_model_or_no_image_is_suggested_where_it_helps(self) -> None:
        nodes = [node(device=Device.CPU), node("g", 2, device=Device.GPU, model="a100")]
        found = after(state(nodes, gang(1, 2, device=Device.GPU)), gang(2, 2, device=Device.GPU))
        suggested = kinds(why(found, "edt-2"))[JobWith]
        assert JobWith("edt-2", device="cpu") in [each.change for each in suggested]
        models = after(state([*nodes, node("h", 2, device=Device.GPU, model="h100")]))
        told = why(after(models, gang(2, 2, models=("b200",))), "edt-2")
        assert JobWith("edt-2", models=("a100",)) in [each.change for each in told.changes]
        told = why(state([node()], elastic(1, image="registry/image")), "edt-1")
        assert JobWith("edt-1", image=False) in [each.change for each in told.changes]
        assert all(each.resubmit for each in kinds(told)[JobWith])

    def test_a_paused_job_is_told_to_be_resumed(self) -> None:
        found = state([node()], elastic(1, paused="paused by ana", not_before=math.inf))
        told = why(found, "edt-1")
        assert [each.change for each in told.changes] == [JobResumed("edt-1")]
        assert_helps(found, "edt-1", told.changes[0])

    def test_a_job_that_waits_for_another_is_told_of_it(self) -> None:
        found = after(state([node()], gang(1, 2)), elastic(2, after=("edt-1",)))
        told = why(found, "edt-2")
        assert told.waits is not None
        assert told.waits.rule == Blocking.DEPENDENCY
        assert [holder.job for holder in told.waits.by] == ["edt-1"]
        assert JobStopped("edt-1") in [each.change for each in told.changes]

    def test_a_limit_that_stands_in_the_way_is_suggested_to_be_raised(self) -> None:
        queues = (Queue("/a", limit=2),)
        found = after(state([node()], gang(1, 2, queue="/a"), queues=queues), gang(2, 2, queue="/a"))
        told = why(found, "edt-2")
        assert told.entitlement is not None
        assert told.entitlement.queues[0].limit == 2
        assert told.entitlement.queues[0].held == 2
        assert QueueWith("/a", limit=4) in [each.change for each in told.changes]
        for each in told.changes:
            assert_helps(found, "edt-2", each)

    def test_a_quota_that_is_lacking_is_suggested_and_brings_the_slot_back(self) -> None:
        queues = (Queue("/a"), Queue("/b", quota=2))
        found = after(
            state([node(slots=2)], elastic(1, queue="/b"), elastic(2, queue="/b"), queues=queues),
            elastic(3, queue="/a"),
        )
        told = why(found, "edt-3")
        assert told.waits is not None
        assert told.waits.rule == Blocking.QUOTA
        (raised,) = kinds(told)[QueueWith]
        assert isinstance(raised.change, QueueWith)
        assert (raised.change.queue, raised.plans) == ("/a", 2)
        for each in told.changes:
            assert_helps(found, "edt-3", each)

    def test_the_time_for_an_answer_ends_the_trying_and_the_answer_says_so(self, full: State) -> None:
        told = explained(full, "edt-3", sight=Sight(), enough=lambda: True)
        assert told.changes == ()
        assert told.untried > 0

    @given(
        slots=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        shut=st.booleans(),
        running=st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4),
        wanted=st.tuples(st.booleans(), st.integers(1, 6), st.integers(1, 3)),
    )
    @settings(max_examples=40, deadline=None)
    def test_in_any_state_each_suggestion_does_what_it_promises(
        self,
        slots: list[int],
        shut: bool,
        running: list[tuple[bool, int, int]],
        wanted: tuple[bool, int, int],
    ) -> None:
        nodes = [node(f"n{number}", size) for number, size in enumerate(slots)]
        nodes += [node("shut", 4, Health.CORDONED)] if shut else []

        def made(number: int, is_gang: bool, size: int, priority: int) -> Job:
            return (gang if is_gang else elastic)(number, size, priority=priority)

        jobs = [made(number, *each) for number, each in enumerate(running, start=1)]
        found = after(state(nodes, *jobs), made(9, *wanted))
        told = why(found, "edt-9")
        for each in told.changes:
            assert_helps(found, "edt-9", each)


class TestOfARunningJob:
    def told(self, found: State, name: str) -> tuple[WhyNotMore, Explained]:
        answer = why(found, name)
        assert answer.holds is not None
        assert answer.holds.next.sentence
        return answer.holds.next.rule, answer

    def test_it_is_told_what_keeps_it_from_more(self) -> None:
        alone = after(state([node(slots=8)], elastic(1)))
        rule, answer = self.told(alone, "edt-1")
        assert rule is WhyNotMore.MAXIMUM
        assert answer.holds is not None
        assert (answer.holds.slots, answer.holds.max) == (4, 4)
        assert self.told(after(state([node(slots=8)], elastic(1, 8))), "edt-1")[0] is WhyNotMore.ENGINES
        assert self.told(after(state([node()], elastic(1, engines=None))), "edt-1")[0] is WhyNotMore.ENGINES
        assert self.told(after(state([node(slots=8)], gang(1, 2))), "edt-1")[0] is WhyNotMore.GANG
        capped = after(state([node()], elastic(1, cap=2, cap_until=1500.0)))
        assert self.told(capped, "edt-1")[0] is WhyNotMore.CAPPED

    def test_what_takes_from_it_is_named_with_its_share_and_the_price(self) -> None:
        found = after(state([node()], elastic(1), elastic(2)))
        rule, answer = self.told(found, "edt-1")
        assert rule in {WhyNotMore.WORTH, WhyNotMore.COST}
        assert answer.holds is not None
        assert answer.holds.share == 2
        assert [holder.job for holder in answer.holds.takers] == ["edt-2"]
        assert answer.entitlement is not None
        assert answer.entitlement.held == 2
        for each in answer.changes:
            grown = settled(changed(bare(found), each.change))
            assert grown.held("edt-1") == each.slots > 2

    def test_a_job_that_grows_with_the_present_plan_is_told_so(self) -> None:
        found = settled(state([node()], elastic(1), gang(2, 2))).state
        freed = changed(found, JobStopped("edt-2"))
        assert self.told(freed, "edt-1")[0] is WhyNotMore.COMING


class TestWhatIf:
    def ask(self, found: State, *changes: Change, sight: Sight | None = None) -> dict[str, Effect]:
        answer = what_if(found, changes, sight=sight or Sight(), until=(lambda: False, lambda: False))
        return {each.job: each.effect for each in answer.jobs}

    def test_more_slots_start_and_grow_jobs_and_a_node_less_makes_them_wait(self) -> None:
        found = after(state([node()], gang(1, 4)), gang(2, 2))
        assert self.ask(found, MoreSlots(2)) == {"edt-2": Effect.STARTS}
        assert self.ask(found, NodeLess("n1")) == {"edt-1": Effect.WAITS, "edt-2": Effect.LATER}

    def test_an_elastic_job_shrinks_for_a_new_one_and_grows_without_it(self) -> None:
        found = after(state([node()], elastic(1)))
        effects = self.ask(found, NewJob(2, user="u2"))
        assert effects["new"] is Effect.STARTS
        assert effects["edt-1"] is Effect.SHRINKS
        both = after(state([node()], elastic(1), elastic(2)))
        assert self.ask(both, JobStopped("edt-2"))["edt-1"] is Effect.GROWS

    def test_several_changes_are_assumed_together(self) -> None:
        found = after(state([node(), node("n2", 2, Health.CORDONED)], gang(1, 4)), gang(2, 4))
        assert self.ask(found, NodeOpened("n2")) == {}
        assert self.ask(found, NodeOpened("n2"), JobWith("edt-2", max=2))["edt-2"] is Effect.STARTS

    def test_jobs_that_the_viewer_may_not_see_are_counted(self) -> None:
        found = after(state([node()], gang(1, 4)), gang(2, 2))
        sight = Sight(frozenset({"edt-1"}))
        answer = what_if(found, [MoreSlots(2)], sight=sight, until=(lambda: False, lambda: False))
        assert answer.jobs == ()
        assert answer.hidden == {"starts": 1}
        assert answer.after.slots == answer.before.slots + 2
        assert "edt-2" not in repr(answer)

    def test_nothing_is_said_where_nothing_changes(self) -> None:
        found = after(state([node()], gang(1, 2)))
        answer = what_if(found, [MoreSlots(2)], sight=Sight(), until=(lambda: False, lambda: False))
        assert answer.sentence == "Nothing changes for any job."

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            (NodeLess("n9"), "node"),
            (NodeOpened("gone"), "node"),
            (JobStopped("edt-9"), "job"),
            (JobResumed("edt-1"), "job"),
            (JobWith("edt-1", min=5, max=4), "min"),
            (JobWith("edt-2", max=3), "max"),
            (JobWith("edt-2", min=3), "min"),
            (JobWith("edt-1", image=True), "image"),
            (QueueWith("", limit=3, unlimited=True), "limit"),
            (NewJob(3, gang=True, unit=2), "max"),
            (NewJob(3, min=4), "min"),
        ],
    )
    def test_what_cannot_be_is_refused_with_the_name_of_its_field(self, change: Change, field: str) -> None:
        found = state([node(), node("gone", health=Health.LOST)], elastic(1), gang(2, 4, unit=2))
        with pytest.raises(ChangeInvalid) as refused:
            changed(found, change)
        assert refused.value.field == field

    def test_each_change_is_said_in_words(self) -> None:
        assert said(
            [
                MoreSlots(1, Device.GPU),
                JobWith("edt-1", max=3, min=2, priority=4, device=ANY, models=(), image=False),
                QueueWith("/a", quota=1, unlimited=True, weight=2.0, policy=Sharing.FIFO),
                NewJob(4, min=2, queue="/a"),
                NewJob(4, gang=True, device=Device.CPU),
            ]
        ) == [
            "there is a further node with 1 GPU slot",
            "edt-1 has priority 4 and needs 2 slots at least and takes 3 slots at most and takes slots of either kind "
            "and takes any model of GPU and brings no image",
            "queue /a has a quota of 1 slot and has no limit and has weight 2 and shares by fifo",
            "there is a new job of up to 4 slots, at least 2 with priority 1 in queue /a",
            "there is a new job of 4 CPU slots at once with priority 1",
        ]


class TestPastErrors:
    def test_they_are_the_median_and_what_nine_of_ten_keep(self) -> None:
        assert PastError.of([]) is None
        assert PastError.of([-5.0]) == PastError(1, 5.0, 5.0)
        assert PastError.of([float(each) for each in range(1, 11)]) == PastError(10, 5.0, 9.0)
