"""How a process ended, and whether its script is to blame: signals that its own instructions raise, and others."""

from __future__ import annotations

import signal

import pytest

from edt_contract.reports import ExitKind
from edt_runner.errors import EXIT_STATUSES, ExitStatus, blames_the_script, exit_kind, status_of_lost_helper

CRASHES = {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}


@pytest.mark.parametrize("number", sorted(signal.Signals), ids=lambda number: number.name)
def test_only_a_signal_that_its_own_instructions_raise_is_the_scripts(number: signal.Signals) -> None:
    assert blames_the_script(None, number, oom=False, hung=False) is (number.name in CRASHES)


@pytest.mark.parametrize("more", [{"oom": True, "hung": False}, {"oom": False, "hung": True}])
def test_a_kill_for_memory_and_one_of_an_engine_that_hung_are_the_scripts(more: dict[str, bool]) -> None:
    assert blames_the_script(None, signal.SIGKILL, **more)


@pytest.mark.parametrize("status", [0, 1, 2, 143, ExitStatus.NO_TRAINING, ExitStatus.HELPER_CRASHED])
def test_an_exit_of_its_own_in_a_micro_batch_is_the_scripts(status: int) -> None:
    assert blames_the_script(status, None, oom=False, hung=False)


@pytest.mark.parametrize(
    "status", [ExitStatus.PEER_LOST, ExitStatus.PULL_FAILED, ExitStatus.HELPER_LOST, ExitStatus.LEFT]
)
def test_an_exit_because_of_another_process_is_not_the_scripts(status: int) -> None:
    assert not blames_the_script(status, None, oom=False, hung=False)


def test_a_loader_process_that_was_killed_for_memory_is_the_scripts() -> None:
    assert blames_the_script(ExitStatus.HELPER_LOST, None, oom=True, hung=False)


def test_an_engine_that_has_left_unasked_has_not_finished() -> None:
    """SIGTERM may have asked it, of which its supervisor does not know."""
    assert exit_kind(EXIT_STATUSES[ExitKind.LEFT], leaving=False) is ExitKind.LEFT
    assert exit_kind(EXIT_STATUSES[ExitKind.FINISHED], leaving=False) is ExitKind.FINISHED


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Segmentation fault. ", ExitStatus.HELPER_CRASHED),
        ("DataLoader worker (pid 7) is killed by signal: Aborted. ", ExitStatus.HELPER_CRASHED),
        ("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that…", ExitStatus.HELPER_CRASHED),
        (
            "DataLoader worker (pid 7) exited unexpectedly with exit code 3. Details are lost…",
            ExitStatus.HELPER_CRASHED,
        ),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", ExitStatus.HELPER_LOST),
        ("DataLoader worker (pid 7) is killed by signal: Terminated. ", ExitStatus.HELPER_LOST),
        ("DataLoader worker (pid(s) 7, 8) exited unexpectedly", ExitStatus.HELPER_LOST),
    ],
)
def test_a_loader_process_that_crashed_is_told_from_one_that_was_killed(words: str, status: int) -> None:
    error = RuntimeError("torch's own words of something else")
    error.__cause__ = RuntimeError(words)
    assert status_of_lost_helper(error) == status
    assert exit_kind(status, leaving=False) is ExitKind.LOST
