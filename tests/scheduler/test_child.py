"""A child process that is kept running, also where it cannot be started for a while."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from edt_scheduler.notify.child import RESTART_SECONDS, SOON_SECONDS, Child
from support.puppets import Clock
from support.waiting import until


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def child(clock: Clock) -> Iterator[Child]:
    """One that ends at once: there is no such module."""
    kept = Child("edt_scheduler.nothing", "the child", sys.stderr.fileno(), {}, clock)
    yield kept
    kept.kill()


def ended(child: Child) -> None:
    """Wait until it has, without looking as ``keep`` does."""
    pid = child.pid
    assert pid is not None
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def test_one_that_cannot_be_started_is_tried_again_later_each_time(
    child: Child, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("edt_scheduler.notify.child.sys.executable", "/nonexistent/python")
    for times, wait in enumerate([*RESTART_SECONDS, RESTART_SECONDS[-1]], 1):
        child.keep()
        assert child.pid is None and len(caplog.records) == times
        clock.pass_(wait - 0.1)
        child.keep()
        assert len(caplog.records) == times, "not before its time"
        clock.pass_(0.2)
    assert "the child cannot be started: [Errno 2]" in caplog.text
    monkeypatch.undo()
    child.keep()
    assert child.pid is not None


def test_one_that_ends_soon_every_time_is_started_later_each_time(child: Child, clock: Clock) -> None:
    child.keep()
    for wait in (*RESTART_SECONDS[:2], RESTART_SECONDS[-1], RESTART_SECONDS[-1]):
        if wait == RESTART_SECONDS[-1]:
            child._failed = len(RESTART_SECONDS)
        ended(child)
        child.keep()
        clock.pass_(wait - 0.1)
        child.keep()
        assert child.pid is None
        clock.pass_(0.2)
        child.keep()
        assert child.pid is not None


def test_one_that_ran_for_long_is_started_again_at_once(child: Child, clock: Clock) -> None:
    child.keep()
    first = child.pid
    ended(child)
    clock.pass_(SOON_SECONDS + 1)
    child.keep()
    assert child.pid not in {None, first}
