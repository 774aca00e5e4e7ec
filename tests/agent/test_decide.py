"""What the agent does, as sentences about pictures: pure, no process, no clock."""

from __future__ import annotations

import dataclasses

from edt_agent.decide import (
    EXIT_SLACK_SECONDS,
    LEAVE_LIMIT_SECONDS,
    START_LIMIT,
    START_SECONDS,
    STOP_SLACK_SECONDS,
    Assigned,
    AttemptSnapshot,
    Close,
    FailedStarts,
    Forget,
    Kill,
    Phase,
    Retry,
    SendDesired,
    Start,
    decide,
)
from edt_agent.errors import backoff_seconds
from edt_agent.supervisor_records import Key
from edt_contract.attempt import Assignment, AttemptSpec, DesiredSlot, DesiredState
from edt_contract.gang import Gang, GangCommand, GangNode
from edt_contract.reports import ExitKind

KEY = Key("edt-1", 2)
DESIRED = DesiredState(2, (DesiredSlot(7, "0"), DesiredSlot(8, "1")))
LIVE = AttemptSnapshot(Phase.LIVE, DESIRED, since=100.0, grace_seconds=30.0)


def assignment(desired: DesiredState = DESIRED) -> Assignment:
    paths = dict.fromkeys(("work_dir", "result_dir", "log_dir", "checkpoint_dir", "spool_dir", "socket"), "/x")
    spec = AttemptSpec(
        job=KEY.job,
        fence=KEY.fence,
        node="n",
        framework="pytorch",
        main="main.py",
        arguments=(),
        environ={},
        seed=1,
        max_engines=4,
        threads=1,
        cores=2,
        grace_seconds=30.0,
        token="t",
        **paths,
    )
    return Assignment(spec, desired)


def of_a_gang(given: Assignment) -> Assignment:
    gang = Gang(GangCommand(("python", "main.py")), 1, (GangNode("n", "127.0.0.1", (7, 8)),))
    return dataclasses.replace(given, spec=dataclasses.replace(given.spec, gang=gang))


def wanting(desired: DesiredState = DESIRED) -> Assigned:
    return Assigned({KEY: assignment(desired)})


NOTHING = Assigned({})


def decided(assigned, running=None, starts=None, *, leaving=False, now=101.0):
    return decide(assigned, running or {}, starts or {}, leaving=leaving, now=now)


class TestAnAttemptThatDoesNotRun:
    def test_is_started_when_it_is_listed(self):
        assert decided(wanting()) == (Start(KEY, assignment()),)

    def test_is_not_started_while_the_node_goes(self):
        assert decided(wanting(), leaving=True) == ()

    def test_waits_out_the_pause_after_a_failed_start(self):
        starts = {KEY: FailedStarts(1, not_before=102.0, why="x")}
        assert decided(wanting(), starts=starts, now=101.0) == ()
        assert decided(wanting(), starts=starts, now=102.0) == (Start(KEY, assignment()),)

    def test_is_given_up_after_its_last_failed_start(self):
        starts = {KEY: FailedStarts(START_LIMIT, 0.0, "no memory")}
        [close] = decided(wanting(), starts=starts)
        assert (close.kind, close.assignment) == (ExitKind.LOST, assignment())
        assert "no memory" in close.message

    def test_ends_as_the_jobs_own_fault_when_it_asks_for_what_cannot_be(self):
        starts = {KEY: FailedStarts(1, 0.0, "no such image", hopeless=True)}
        [close] = decided(wanting(), starts=starts)
        assert (close.kind, close.message) == (ExitKind.SCRIPT_ERROR, "no such image")

    def test_is_lost_and_not_started_again_if_it_is_a_gang_that_has_reported_from_here(self):
        new = of_a_gang(assignment())
        assert decided(Assigned({KEY: new})) == (Start(KEY, new),)
        known = dataclasses.replace(new, spec=dataclasses.replace(new.spec, last_report_seq=2))
        [close] = decided(Assigned({KEY: known}))
        assert (close.kind, close.assignment) == (ExitKind.LOST, known)

    def test_gets_a_last_word_when_it_is_to_stop_or_leave(self):
        stop, leave = DesiredState(2, (), stop=True), DesiredState(2, (), leaving=(7,))
        assert decided(wanting(stop))[0].kind is ExitKind.STOPPED
        assert decided(wanting(leave))[0].kind is ExitKind.LEFT


class TestAnAttemptThatRuns:
    def test_is_left_alone_when_nothing_changed(self):
        assert decided(wanting(), {KEY: LIVE}) == ()

    def test_is_left_alone_until_the_api_has_answered(self):
        assert decided(None, {KEY: LIVE}) == ()

    def test_that_died_gets_no_last_word_until_the_api_has_answered(self):
        dead = dataclasses.replace(LIVE, phase=Phase.DEAD, lives=False, empty=True)
        assert decided(None, {KEY: dead}) == ()
        assert decided(NOTHING, {KEY: dead}) == (Forget(KEY),)
        [close] = decided(wanting(), {KEY: dead})
        assert close.kind is ExitKind.LOST

    def test_is_told_what_changed(self):
        fewer = DesiredState(2, (DesiredSlot(7, "0"),), leaving=(8,))
        assert decided(wanting(fewer), {KEY: LIVE}) == (SendDesired(KEY, fewer),)

    def test_is_told_again_after_its_adoption(self):
        adopted = dataclasses.replace(LIVE, desired=None)
        assert decided(wanting(), {KEY: adopted}) == (SendDesired(KEY, DESIRED),)

    def test_is_stopped_when_it_is_no_longer_listed(self):
        assert decided(NOTHING, {KEY: LIVE}) == (SendDesired(KEY, DesiredState(2, (), stop=True)),)

    def test_is_left_alone_when_its_assignment_cannot_be_read(self):
        assert decided(Assigned({}, frozenset({KEY})), {KEY: LIVE}) == ()

    def test_leaves_when_the_node_goes_and_answers_for_all_its_slots(self):
        [send] = decided(wanting(), {KEY: LIVE}, leaving=True)
        assert send == SendDesired(KEY, DesiredState(2, (), leaving=(7, 8)))

    def test_leaves_also_when_the_api_never_answered(self):
        adopted = dataclasses.replace(LIVE, desired=None)
        assert decided(None, {KEY: adopted}, leaving=True) == (SendDesired(KEY, DesiredState(2, ())),)

    def test_that_does_not_stop_is_killed_after_its_grace(self):
        stop = DesiredState(2, (), stop=True)
        stopping = dataclasses.replace(LIVE, desired=stop)
        due = 100.0 + 30.0 + STOP_SLACK_SECONDS
        assert decided(wanting(stop), {KEY: stopping}, now=due) == ()
        [kill] = decided(wanting(stop), {KEY: stopping}, now=due + 0.1)
        assert isinstance(kill, Kill)

    def test_that_leaves_is_given_three_long_steps(self):
        leave = DesiredState(2, (), leaving=(7, 8))
        leaving = dataclasses.replace(LIVE, desired=leave)
        assert decided(wanting(leave), {KEY: leaving}, now=100.0 + LEAVE_LIMIT_SECONDS) == ()
        [kill] = decided(wanting(leave), {KEY: leaving}, now=101.0 + LEAVE_LIMIT_SECONDS)
        assert isinstance(kill, Kill)

    def test_of_a_gang_has_its_grace_to_leave_and_no_longer(self):
        leave = DesiredState(2, (), leaving=(7, 8))
        leaving = dataclasses.replace(LIVE, desired=leave, gang=True)
        due = 100.0 + 30.0 + STOP_SLACK_SECONDS
        assert decided(wanting(leave), {KEY: leaving}, now=due) == ()
        [kill] = decided(wanting(leave), {KEY: leaving}, now=due + 0.1)
        assert isinstance(kill, Kill)
        assert decided(wanting(), {KEY: dataclasses.replace(LIVE, gang=True)}, now=100.0 + 7 * 86_400) == ()

    def test_that_never_takes_its_spec_is_killed_and_so_tried_again(self):
        not_begun = dataclasses.replace(LIVE, began=False)
        assert decided(wanting(), {KEY: not_begun}, now=100.0 + START_SECONDS) == ()
        [kill] = decided(wanting(), {KEY: not_begun}, now=100.1 + START_SECONDS)
        assert isinstance(kill, Kill)


class TestAnAttemptWhoseSupervisorIsGone:
    dead = dataclasses.replace(LIVE, phase=Phase.DEAD, lives=False, code=-9)

    def test_is_killed_until_no_process_of_it_is_left(self):
        assert decided(wanting(), {KEY: self.dead}) == (Kill(KEY, "its supervisor is gone"),)

    def test_is_closed_as_lost_then(self):
        empty = dataclasses.replace(self.dead, empty=True)
        assert decided(wanting(), {KEY: empty}) == (Close(KEY, ExitKind.LOST, "its supervisor was ended by signal 9"),)

    def test_is_told_to_have_run_out_of_memory_where_that_is_known(self):
        starved = dataclasses.replace(self.dead, empty=True, oom=True)
        [close] = decided(wanting(), {KEY: starved})
        assert (close.kind, close.message) == (ExitKind.LOST, "its supervisor was killed for want of memory")

    def test_is_told_with_what_it_said_last_where_it_never_kept_a_log(self):
        mute = dataclasses.replace(self.dead, empty=True, began=False, code=1, last_output="No module named edt_runner")
        [retry] = decided(wanting(), {KEY: mute})
        assert retry.why == "its supervisor ended with status 1: No module named edt_runner"

    def test_is_closed_as_stopped_when_it_was_to_stop(self):
        stopped = dataclasses.replace(self.dead, empty=True, desired=DesiredState(2, (), stop=True))
        assert decided(wanting(), {KEY: stopped})[0].kind is ExitKind.STOPPED

    def test_is_started_again_only_if_it_never_began(self):
        fresh = dataclasses.replace(self.dead, empty=True, began=False)
        [retry] = decided(wanting(), {KEY: fresh})
        assert isinstance(retry, Retry)
        [close] = decided(wanting(), {KEY: fresh}, {KEY: FailedStarts(START_LIMIT - 1, 0.0, "x")})
        assert isinstance(close, Close)

    def test_is_forgotten_when_nobody_wants_to_hear_of_it(self):
        assert decided(NOTHING, {KEY: dataclasses.replace(self.dead, empty=True)}) == (Forget(KEY),)


class TestAnAttemptThatHasEnded:
    ended = dataclasses.replace(LIVE, phase=Phase.ENDED, last_seq=9)

    def test_may_take_a_moment_to_exit(self):
        assert decided(wanting(), {KEY: self.ended}) == ()
        [kill] = decided(wanting(), {KEY: self.ended}, now=100.1 + EXIT_SLACK_SECONDS)
        assert isinstance(kill, Kill)

    def test_takes_with_it_what_it_left_behind(self):
        [kill] = decided(wanting(), {KEY: dataclasses.replace(self.ended, lives=False)})
        assert isinstance(kill, Kill)

    def test_is_forgotten_when_the_api_has_heard_all_and_lists_it_no_more(self):
        over = dataclasses.replace(self.ended, lives=False, empty=True)
        reported = dataclasses.replace(over, reported=True)
        assert decided(NOTHING, {KEY: over}) == ()
        assert decided(wanting(), {KEY: reported}) == ()
        assert decided(NOTHING, {KEY: reported}) == (Forget(KEY),)


class TestAnAttemptThatLeftAndIsWantedAgain:
    left = AttemptSnapshot(
        Phase.ENDED, DesiredState(2, (), leaving=(5,)), 100.0, 30.0, lives=False, empty=True, reported=True, last_seq=9
    )

    def wanting(self, last_report_seq: int, desired: DesiredState = DESIRED) -> Assigned:
        again = assignment(desired)
        return Assigned(
            {KEY: dataclasses.replace(again, spec=dataclasses.replace(again.spec, last_report_seq=last_report_seq))}
        )

    def test_is_started_anew_only_when_its_last_word_is_on_disk_where_the_next_one_counts_its_lines(self):
        unwritten = dataclasses.replace(self.left, written=False)
        assert decided(self.wanting(last_report_seq=9), {KEY: unwritten}) == ()

    def test_is_started_anew_once_the_api_lists_it_and_has_heard_its_last_word(self):
        again = self.wanting(last_report_seq=9)
        assert decided(again, {KEY: self.left}) == (Start(KEY, again.assignments[KEY]),)

    def test_is_not_started_anew_if_it_is_a_gang_whose_programs_would_run_twice(self):
        again = self.wanting(last_report_seq=9).assignments[KEY]
        assert decided(Assigned({KEY: of_a_gang(again)}), {KEY: self.left}) == ()

    def test_is_not_started_by_a_list_that_is_older_than_its_last_word(self):
        assert decided(self.wanting(last_report_seq=8), {KEY: self.left}) == ()

    def test_is_not_started_while_a_process_of_the_first_is_left(self):
        remains = dataclasses.replace(self.left, empty=False)
        [kill] = decided(self.wanting(last_report_seq=9), {KEY: remains})
        assert isinstance(kill, Kill)

    def test_waits_out_the_pause_after_a_failed_start(self):
        starts = {KEY: FailedStarts(1, not_before=102.0, why="x")}
        assert decided(self.wanting(last_report_seq=9), {KEY: self.left}, starts, now=101.0) == ()

    def test_gets_a_last_word_of_its_own_when_it_is_stopped_before_it_starts(self):
        [close] = decided(self.wanting(9, DesiredState(2, (), stop=True)), {KEY: self.left})
        assert (close.kind, close.assignment is None) == (ExitKind.STOPPED, False)


def test_pauses_between_starts_double_up_to_a_minute():
    assert [backoff_seconds(n) for n in (1, 2, 3, 4, 20, 5000)] == [1.0, 2.0, 4.0, 8.0, 60.0, 60.0]
