"""The rules of jobs and nodes that need no database."""

from __future__ import annotations

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.errors import IllegalTransition
from edt_scheduler.model.jobs import backoff_seconds, exec_id, job_number, state_after
from edt_scheduler.model.nodes import Leases, threads_per_engine
from edt_scheduler.model.states import ACTIVE, TERMINAL, Health, Intent, JobState, advance, health
from edt_scheduler.settings import Settings
from support.puppets import Clock


class TestStates:
    def test_a_terminal_state_is_never_left(self) -> None:
        assert TERMINAL == (JobState.FINISHED, JobState.KILLED, JobState.ERROR)
        for before in TERMINAL:
            for after in JobState:
                with pytest.raises(IllegalTransition):
                    advance(before, after)

    def test_every_active_state_can_reach_an_end(self) -> None:
        for before in ACTIVE:
            assert advance(before, JobState.KILLED) is JobState.KILLED

    def test_clients_see_only_the_six_words_they_know(self) -> None:
        words = {state.wire for state in JobState}
        assert words == {"SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING", "FINISHED", "KILLED", "ERROR"}

    @pytest.mark.parametrize(
        ("kind", "stopped", "expected"),
        [
            (ExitKind.FINISHED, False, JobState.FINISHED),
            (ExitKind.FINISHED, True, JobState.FINISHED),
            (ExitKind.SCRIPT_ERROR, False, JobState.ERROR),
            (ExitKind.SCRIPT_ERROR, True, JobState.KILLED),
            (ExitKind.LOST, False, JobState.PENDING),
            (ExitKind.LOST, True, JobState.KILLED),
            (ExitKind.LEFT, False, JobState.PENDING),
            (ExitKind.STOPPED, False, JobState.KILLED),
        ],
    )
    def test_each_exit_has_its_own_rule_and_a_stop_wins_over_all_but_success(
        self, kind: ExitKind, stopped: bool, expected: JobState
    ) -> None:
        assert state_after(kind, stop_requested=stopped) is expected

    def test_the_wait_after_losses_doubles_up_to_a_minute(self) -> None:
        assert [backoff_seconds(ExitKind.LOST, n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert backoff_seconds(ExitKind.LEFT, 3) == 0

    @pytest.mark.parametrize("text", ["edt-0", "edt-07", "edt-", "7", "edt-7 ", "wmla-7", "edt-" + "9" * 40])
    def test_what_is_no_exec_id_is_none(self, text: str) -> None:
        assert job_number(text) is None

    def test_an_exec_id_names_its_row(self) -> None:
        assert job_number(exec_id(7)) == 7


class TestLeases:
    def test_a_node_is_lost_when_its_counter_has_stood_still_for_its_lease(self) -> None:
        clock, leases = Clock(0), Leases(30)
        assert leases.observe({1: 5, 2: 8}, clock()) == set()
        clock.pass_(20)
        assert leases.observe({1: 6, 2: 8}, clock()) == set()
        clock.pass_(11)
        assert leases.observe({1: 6, 2: 8}, clock()) == {2}
        clock.pass_(20)
        assert leases.observe({1: 6, 2: 9}, clock()) == {1}

    def test_a_new_observer_gives_everybody_a_whole_lease(self) -> None:
        assert Leases(30).observe({1: 5}, 1e9) == set()

    def test_a_node_that_is_no_longer_watched_starts_anew(self) -> None:
        leases = Leases(30)
        leases.observe({1: 5}, 0)
        leases.observe({}, 20)
        assert leases.observe({1: 5}, 40) == set()


def test_a_lost_node_is_lost_whatever_is_wanted_of_it() -> None:
    assert {health(intent, lost=True) for intent in Intent} == {Health.LOST}
    assert [health(intent, lost=False) for intent in Intent] == [Health.UP, Health.CORDONED, Health.DRAINING]


def test_threads_are_the_least_share_of_any_nodes_cores() -> None:
    assert threads_per_engine([(16, 4), (8, 4)]) == 2
    assert threads_per_engine([(2, 4)]) == 1
    assert threads_per_engine([]) == 1
    assert threads_per_engine([(8, 0)]) == 1


def test_a_socket_that_would_be_too_long_moves_to_a_short_folder_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    short = Settings.model_construct(home=tmp_path_factory.getbasetemp().parent / "h")
    spool = short.jobs / "edt-1" / "spool" / "1-n"
    assert short.socket(spool, "edt-1", 1, "n").parent == spool
    long = Settings.model_construct(home=short.home / ("x" * 90))
    spool = long.jobs / "edt-1" / "spool" / "1-n"
    path = long.socket(spool, "edt-1", 1, "n")
    assert len(str(path)) < 100
    assert path != long.socket(spool, "edt-1", 2, "n") != long.socket(spool, "edt-1", 2, "m")
