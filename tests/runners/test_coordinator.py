"""The coordinator over real sockets: what its lines say when some of those who spoke are dead."""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edt_contract.encoding import dump_line
from edt_runner.coordinator.lifecycle import SILENT_SECONDS
from edt_runner.coordinator.server import CoordinatorServer
from edt_runner.driver import Driver
from edt_runner.engine.link import EngineLink
from edt_runner.errors import PeerLost
from edt_runner.protocol import channel
from edt_runner.protocol.channel import Channel, connect
from edt_runner.protocol.messages import (
    EngineExpected,
    EngineGone,
    Hello,
    Message,
    Progress,
    Resized,
    Role,
    StateLost,
    TrainingReport,
)
from support.talk import status
from support.waiting import until

OTHER_VERSION = channel.PROTOCOL_VERSION + 1
TOKEN = "a token for tests"
STATUS = status(7, "1")


class Leader:
    """The supervisor of a coordinator that is not the attempt's first, and the clock of both."""

    def __init__(self) -> None:
        self.now = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        ours, self._theirs = socket.socketpair()
        self._line = Channel(ours)
        self._messages: list[Message] = []

    def send(self, message: Message) -> None:
        self._line.send(message)

    def received(self, kind: type[Message], later: float = 0.0) -> bool:
        """Whether it has been told this by now, or so much later."""
        self.now += later
        if select.select([self._line], [], [], 0)[0]:
            self._messages += self._line.read()
        return any(isinstance(message, kind) for message in self._messages)

    def bodies(self, report: str) -> list[Mapping[str, Any]]:
        """Bodies of the reports of this kind that it has been given."""
        self.received(TrainingReport)
        reports = (message for message in self._messages if isinstance(message, TrainingReport))
        return [message.body for message in reports if message.report == report]

    @contextmanager
    def coordinator(self) -> Iterator[None]:
        """It begins to serve, until the block ends."""
        coordinator = CoordinatorServer(self.listener, TOKEN, self._theirs, recovering=True, clock=lambda: self.now)
        thread = threading.Thread(target=coordinator.serve)
        thread.start()
        try:
            yield
        finally:
            self._line.end()
            thread.join(10)
            self._line.close()
            for key in list(coordinator._selector.get_map().values()):  # its process would end here, and they with it
                cast(Any, key.fileobj).close()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def called_and_died(leader: Leader) -> None:
    """An engine takes up the line while no coordinator is there to answer, and is killed."""
    line = Channel(connect(leader.address, role=Role.ENGINE, token=TOKEN, name="1"))
    line.send(STATUS)
    line.send(Progress(5, 10, 1, 2, 1, 0.5, 10.0, {}))
    line.close()


def test_an_engine_that_died_before_it_was_heard_is_not_counted_on(leader: Leader) -> None:
    called_and_died(leader)
    leader.send(EngineGone("1"))
    with leader.coordinator():
        until(lambda: leader.received(TrainingReport), what="what it had to report is passed on")
        leader.now = SILENT_SECONDS + 1
        until(lambda: leader.received(StateLost), what="nobody has the weights")


def test_an_engine_that_died_with_its_supervisor_before_either_was_heard_is_not_counted_on(leader: Leader) -> None:
    called_and_died(leader)
    with leader.coordinator():
        until(lambda: leader.received(TrainingReport), what="what it had to report is passed on")
        until(lambda: leader.received(StateLost, later=1.0), what="nobody has the weights")


def test_an_engine_whose_supervisor_has_gone_to_a_successor_counts_as_gone_after_five_seconds_only(
    leader: Leader,
) -> None:
    """Within that time the old head node reads that it has a successor, and ends its coordinator."""
    with leader.coordinator():
        line = Channel(connect(leader.address, role=Role.ENGINE, token=TOKEN, name="1"))
        line.send(STATUS)
        supervisor = Channel(connect(leader.address, role=Role.SUPERVISOR, token=TOKEN, name="there"))
        supervisor.send(EngineExpected("1"))

        steps = itertools.count()

        def go_on() -> None:
            """Make progress twice: between the two reports, the coordinator has looked at its clock."""
            for step in itertools.islice(steps, 2):
                line.send(Progress(step, 10, 1, 2, 1, 0.5, 10.0, {}))
                until(partial(reported, step))

        def reported(step: int) -> bool:
            return any(body["step"] == step for body in leader.bodies("progress"))

        def listens() -> bool:
            """Whether the supervisor is told of progress: then the coordinator has read what it sent."""
            go_on()
            return bool(select.select([supervisor], [], [], 0.1)[0])

        until(listens)
        supervisor.close()
        go_on()
        leader.now += 4.5
        go_on()
        assert not leader.received(StateLost)
        until(lambda: leader.received(StateLost, later=0.2), what="nobody has the weights")
        assert leader.now < 7
        line.close()


def test_an_engine_is_told_as_lost_once_however_many_regroups_its_death_takes(leader: Leader) -> None:
    with leader.coordinator():
        line = Channel(connect(leader.address, role=Role.ENGINE, token=TOKEN, name="1"))
        line.send(STATUS)
        for generation, lost in ((8, (3,)), (9, (2, 3)), (10, (2, 3)), (11, ())):
            line.send(Resized(generation, 5, 1, None, lost=lost))
        until(lambda: any(body["generation"] == 11 for body in leader.bodies("resized")))
        line.close()
        bodies = [(body["generation"], body["lost"]) for body in leader.bodies("resized")]
        assert bodies == [(8, [3]), (9, [2]), (11, [])]


# ── processes of another release ──────────────────────────────────────────────────────────────────────────────────
SECONDS, MOST_TRIES = 1.5, 5


def refused(caplog: pytest.LogCaptureFixture) -> int:
    """How often the coordinator has refused a hello of another version."""
    why = f"hello: version is {OTHER_VERSION}, this process reads {channel.PROTOCOL_VERSION}"
    return sum(why in record.getMessage() for record in caplog.records)


def of_another_release(message: Message) -> bytes:
    """A message as a line; a hello has another version."""
    return dump_line(replace(message, version=OTHER_VERSION) if isinstance(message, Hello) else message)


def test_an_engine_of_another_release_waits_between_its_tries(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(channel, "dump_line", of_another_release)
    with leader.coordinator():
        link = EngineLink(leader.address, tmp_path / "note", TOKEN, "1", cast(Any, None))
        time.sleep(SECONDS)
        vars(link)["_reconnect"] = threading.Event().wait  # its thread rests for ever, also after the test
    assert 1 <= refused(caplog) <= MOST_TRIES


def test_a_driver_of_another_release_waits_between_its_tries(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(channel, "dump_line", of_another_release)
    training = SimpleNamespace(
        adapter=lambda on_device: None,
        with_callbacks=lambda adapter, runs: (adapter, None),
        request=SimpleNamespace(driver_logger=SimpleNamespace(on_train_begin=int, on_train_end=int), notes=()),
        samples=SimpleNamespace(notes=()),
    )
    spec = SimpleNamespace(
        spool_dir=str(tmp_path), result_dir=str(tmp_path), token=TOKEN, socket=str(tmp_path / "gone")
    )
    silent = SimpleNamespace(note=print, begin=print, broke_off=print, close=int)
    monkeypatch.setattr("edt_runner.driver.DriverLog", lambda *parts: silent)
    for step in ("_resume", "_define", "_begin"):
        monkeypatch.setattr(Driver, step, lambda driver: None)
    ended: list[BaseException] = []

    def drive() -> None:
        with pytest.raises(PeerLost) as raised:
            Driver(cast(Any, training), cast(Any, spec), leader.address).run()
        ended.append(raised.value)

    with leader.coordinator():
        thread = threading.Thread(target=drive)
        thread.start()
        time.sleep(SECONDS)
    thread.join(20)
    assert ended and 1 <= refused(caplog) <= MOST_TRIES
