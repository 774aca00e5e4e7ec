"""The coordinator over real sockets: what its lines say when some of those who spoke are dead."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from edt_runner.channel import Channel, connect
from edt_runner.coordinator import Coordinator
from edt_runner.recovery import SILENT_SECONDS
from support.waiting import until

TOKEN = "a token for tests"
STANDING = {"kind": "standing", "generation": 7, "doing": "training", "announced": 7, "round": 3, "members": ["1"]}


class Leader:
    """The supervisor of a coordinator that is not the attempt's first, and the clock of both."""

    def __init__(self) -> None:
        self.now = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        ours, self._theirs = socket.socketpair()
        self._line = Channel(ours)
        self._heard: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        self._line.send({"kind": kind, **fields})

    def hears(self, kind: str, later: float = 0.0) -> bool:
        """Whether it has been told this by now, or so much later."""
        self.now += later
        if select.select([self._line], [], [], 0)[0]:
            self._heard += self._line.read()
        return any(message["kind"] == kind for message in self._heard)

    def told(self, report: str) -> list[dict[str, Any]]:
        """Bodies of the reports of this kind that it has been given."""
        self.hears("report")
        return [message["body"] for message in self._heard if message.get("report") == report]

    @contextmanager
    def coordinator(self) -> Iterator[None]:
        """It begins to serve, until the block ends."""
        coordinator = Coordinator(self.listener, TOKEN, recovering=True, clock=lambda: self.now)
        thread = threading.Thread(target=coordinator.serve, args=(self._theirs,))
        thread.start()
        try:
            yield
        finally:
            self._line.end()
            thread.join(10)
            self._line.close()
            self.listener.close()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def called_and_died(leader: Leader) -> None:
    """An engine takes up the line while no coordinator is there to answer, and is killed."""
    line = Channel(connect(leader.address, role="engine", token=TOKEN, name="1"))
    line.send(STANDING)
    line.send({"kind": "report", "report": "progress", "body": {"step": 5}})
    line.close()


def test_an_engine_that_died_before_it_was_heard_is_not_counted_on(leader: Leader) -> None:
    called_and_died(leader)
    leader.say("gone", engine="1")
    with leader.coordinator():
        until(lambda: leader.hears("report"), what="what it had to report is passed on")
        leader.now = SILENT_SECONDS + 1
        until(lambda: leader.hears("lost"), what="nobody has the weights")


def test_an_engine_that_died_with_its_supervisor_before_either_was_heard_is_not_counted_on(leader: Leader) -> None:
    called_and_died(leader)
    with leader.coordinator():
        until(lambda: leader.hears("report"), what="what it had to report is passed on")
        until(lambda: leader.hears("lost", later=1.0), what="nobody has the weights")


def test_an_engine_is_told_as_lost_once_however_many_rounds_its_death_takes(leader: Leader) -> None:
    with leader.coordinator():
        line = Channel(connect(leader.address, role="engine", token=TOKEN, name="1"))
        line.send(STANDING)
        for generation, lost in ((8, [3]), (9, [2, 3]), (10, [2, 3]), (11, [])):
            line.send({"kind": "report", "report": "resized", "body": {"generation": generation, "lost": lost}})
        until(lambda: leader.told("resized")[-1:] == [{"generation": 11, "lost": []}])
        line.close()
        assert leader.told("resized")[:-1] == [{"generation": 8, "lost": [3]}, {"generation": 9, "lost": [2]}]
