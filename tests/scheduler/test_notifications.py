"""Notifications over a real broker: what they carry, what a dead broker costs, and that they decide nothing."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from edt_contract.broker import NOTIFICATION_TASK, node_queue
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.notify import broker
from edt_scheduler.notify.broker import SCHEDULERS, celery_app
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import agents, history
from edt_scheduler.platform import Platform
from edt_scheduler.store import outbox
from edt_scheduler.store.outbox import LOOK_TASK, SCHEDULER_QUEUE
from support.broker import start_valkey
from support.puppets import Stage
from support.waiting import until

Message = tuple[str, list[Any]]
PATIENCE = 20.0
"""With a broker that hangs, where a test shows that only the relay has it."""


class Listener:
    """Somebody who listens on one queue, as a Celery worker would."""

    def __init__(self, url: str, name: str) -> None:
        app = celery_app(url, sends=False)
        before = _listeners(url)
        app.conf.broker_transport_options["polling_interval"] = 0.05  # so long closing takes
        self._connection = app.connection_for_read()
        broadcast = name == SCHEDULER_QUEUE
        self._queue = self._connection.SimpleQueue(SCHEDULERS if broadcast else name)
        if broadcast:
            with suppress(queue.Empty):
                self._queue.get(timeout=0.1)  # subscribes
            until(lambda: _listeners(url) > before)

    def received(self, seconds: float = 30.0, still: float = 0.05) -> list[Message]:
        """What comes within ``seconds``, and after the first until it has been still for a moment."""
        found: list[Message] = []
        while True:
            try:
                message = self._queue.get(timeout=still if found else seconds)
            except queue.Empty:
                return found
            found.append((message.headers["task"], message.payload[0]))
            message.ack()

    def close(self) -> None:
        self._queue.close()
        self._connection.release()


def _listeners(url: str) -> int:
    """How many listen to what is broadcast."""
    with redis.Redis(unix_socket_path=url.removeprefix("redis+socket://")) as client:
        return sum(int(each["psub"]) for each in client.client_list())


class RelayedByHand(Notifier):
    """Only ``relay`` sends."""

    def notify(self) -> None:
        """Later."""


@pytest.fixture
def listen(valkey: str) -> Iterator[Callable[[str], Listener]]:
    listeners: list[Listener] = []

    def one(name: str) -> Listener:
        listeners.append(Listener(valkey, name))
        return listeners[-1]

    yield one
    for listener in listeners:
        listener.close()


@pytest.fixture
def connected(sqlite_stage: Stage, valkey: str) -> Iterator[Stage]:
    """A platform with a broker."""
    yield from _with_broker(sqlite_stage, valkey)


def _with_broker(stage: Stage, url: str) -> Iterator[Stage]:
    platform = stage.platform
    notifier = Notifier(platform.database, url, platform.clock)
    yield Stage(Platform(platform.database, notifier, platform.settings, platform.clock), stage.clock, stage.admin)
    notifier.close()


def waiting(stage: Stage) -> int:
    with stage.platform.database.snapshot() as tx:
        return len(outbox.pending(tx))


def test_a_submit_notifies_the_scheduler_and_a_decision_notifies_the_node(
    connected: Stage, listen: Callable[[str], Listener]
) -> None:
    scheduler, node = listen(SCHEDULER_QUEUE), listen(node_queue("n1"))
    connected.node()
    job = connected.submit()
    assert {task for task, _ in scheduler.received()} == {LOOK_TASK}
    assert node.received(0.01) == []
    look(connected.platform)
    version = agents.assignments_version(connected.platform, "n1")
    assert node.received() == [(NOTIFICATION_TASK, ["n1", version])]
    until(lambda: waiting(connected) == 0)
    (resize,) = history.resizes(connected.platform, job, viewer=connected.admin)
    assert resize.notified_at == connected.clock.now


def test_nothing_that_rolled_back_notifies(connected: Stage, listen: Callable[[str], Listener]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    with pytest.raises(ZeroDivisionError), connected.platform.database.transaction() as tx:
        outbox.put_scheduler(tx, 1.0)
        raise ZeroDivisionError
    connected.platform.notifier.notify()
    assert scheduler.received(0.2) == []


def test_many_notifications_of_one_queue_are_sent_once(connected: Stage, listen: Callable[[str], Listener]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    with connected.platform.database.transaction() as tx:
        for _ in range(50):
            outbox.put_scheduler(tx, connected.clock())
    assert connected.platform.notifier.relay()
    assert len(scheduler.received()) == 1


def test_a_dead_broker_holds_nobody_up_and_what_is_too_old_to_be_sent_is_dropped(
    sqlite_stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "SEND_TIMEOUT_SECONDS", PATIENCE)
    socket = tmp_path / "s"
    for stage in _with_broker(sqlite_stage, f"redis+socket://{socket}"):
        stage.node()
        began = time.monotonic()
        stage.submit()
        stage.settle()
        assert time.monotonic() - began < PATIENCE / 2
        assert not stage.platform.notifier.relay()
        assert waiting(stage) > 0
        stage.clock.pass_(61)
        stage.platform.notifier.relay()
        assert waiting(stage) == 0


def test_what_could_not_be_sent_is_sent_when_the_broker_is_back(sqlite_stage: Stage, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    for stage in _with_broker(sqlite_stage, f"redis+socket://{socket}"):
        stage.node()
        stage.submit()
        look(stage.platform)
        assert not stage.platform.notifier.relay()
        valkey = start_valkey(socket)
        try:
            listener = Listener(f"redis+socket://{socket}", node_queue("n1"))
            assert [task for task, _ in listener.received()] == [NOTIFICATION_TASK]
            listener.close()
        finally:
            valkey.kill()
            valkey.wait()


@pytest.mark.parametrize("times", [0, 1, 2], ids=["dropped", "delivered", "doubled"])
def test_messages_decide_nothing(
    sqlite_stage: Stage, valkey: str, listen: Callable[[str], Listener], times: int
) -> None:
    """The same story with every message dropped, delivered and doubled has the same history of allocations."""
    scheduler, listener = listen(SCHEDULER_QUEUE), listen(node_queue("n1"))
    listeners = RelayedByHand(sqlite_stage.platform.database, valkey, sqlite_stage.clock)
    connected = replace(sqlite_stage, platform=replace(sqlite_stage.platform, notifier=listeners))
    node = connected.node()

    def received_first(listens: Listener, name: str) -> list[Message]:
        """What is to come on a queue comes before anything else happens."""
        with connected.platform.database.snapshot() as tx:
            due = any(row.queue == name for row in outbox.pending(tx))
        assert listeners.relay()
        return listens.received() * times if due else []

    def come_to_rest() -> None:
        still = False
        while not still:
            moved = [look(connected.platform) for _ in received_first(scheduler, SCHEDULER_QUEUE)]
            reported = len(node.reported)
            for _ in received_first(listener, node_queue("n1")):
                node.obey("notification")
            moved.append(look(connected.platform))  # the timers
            node.obey("timer")
            still = not any(moved) and reported == len(node.reported)

    a = connected.submit()
    come_to_rest()
    b = connected.submit()
    come_to_rest()
    node.end((b, 1), ExitKind.FINISHED)
    come_to_rest()
    timeline = history.timeline(connected.platform, viewer=connected.admin)
    story = [(held.exec_id, held.fence, held.slot, held.kind) for held in timeline.allocations]
    assert story == [
        (a, 1, "0", None),
        (a, 1, "1", None),
        (a, 1, "2", ExitKind.LEFT),
        (a, 1, "3", ExitKind.LEFT),
        (b, 1, "2", ExitKind.FINISHED),
        (b, 1, "3", ExitKind.FINISHED),
        (a, 1, "2", None),
        (a, 1, "3", None),
    ]
    resizes = [
        each for job in timeline.jobs for each in history.resizes(connected.platform, job, viewer=connected.admin)
    ]
    woken = {resize.woken_by for resize in resizes}
    assert ("timer" in woken) if times == 0 else ("notification" in woken)
    listeners.close()


def test_a_slow_relay_never_drops_a_notification_that_it_has_not_sent(stage: Stage) -> None:
    """A number that another relay has cleared away meanwhile must not come back on a new notification."""
    numbers = []
    for _ in range(3):
        with stage.platform.database.transaction() as tx:
            outbox.put_scheduler(tx, stage.clock())
            numbers += [row.id for row in outbox.pending(tx)]
        assert stage.platform.notifier.relay()
    assert len(set(numbers)) == 3


def test_two_relays_at_once_send_at_most_twice(connected: Stage, listen: Callable[[str], Listener]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    other = replace(connected.platform, notifier=Notifier(connected.platform.database, "", connected.clock))
    with connected.platform.database.transaction() as tx:
        outbox.put_scheduler(tx, connected.clock())
    assert connected.platform.notifier.relay()
    assert other.notifier.relay()
    assert len(scheduler.received()) == 1


def test_a_broker_that_hangs_holds_no_submit_up_and_notifies_again_when_it_goes_on(
    sqlite_stage: Stage, valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "SEND_TIMEOUT_SECONDS", PATIENCE)
    for stage in _with_broker(sqlite_stage, valkey):
        _hangs_for_a_while(stage, valkey)


def _hangs_for_a_while(connected: Stage, valkey: str) -> None:
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as broker:
        pid = broker.info("server")["process_id"]
    connected.submit()
    until(lambda: waiting(connected) == 0)
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        connected.submit()
        assert time.monotonic() - began < PATIENCE / 2, "the relay waits for the broker, nobody else does"
        assert waiting(connected) > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: waiting(connected) == 0)
    connected.submit()
    until(lambda: waiting(connected) == 0)


def test_a_broker_that_forgot_everything_costs_an_interval_and_goes_on(
    connected: Stage, valkey: str, listen: Callable[[str], Listener]
) -> None:
    listener = listen(SCHEDULER_QUEUE)
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as broker:
        connected.submit()
        until(lambda: waiting(connected) == 0)
        broker.flushall()
        job = connected.submit()
        assert (LOOK_TASK, []) in listener.received()
        assert connected.job(job).exec_id == job
        broker.flushall()
        assert look(connected.platform), "what it was connected for is in the database"


def test_a_broker_without_memory_refuses_notifications_and_no_submit(
    connected: Stage, valkey: str, listen: Callable[[str], Listener]
) -> None:
    listener = listen(node_queue("n1"))
    connected.node()
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        began = time.monotonic()
        connected.submit()
        assert time.monotonic() - began < PATIENCE / 2
        look(connected.platform)
        assert not connected.platform.notifier.relay()
        assert waiting(connected) > 0
        client.config_set("maxmemory", 0)
    assert [task for task, _ in listener.received()] == [NOTIFICATION_TASK]
    until(lambda: waiting(connected) == 0)


def test_each_scheduler_hears_each_and_nothing_waits_for_those_that_are_gone(
    connected: Stage, valkey: str, listen: Callable[[str], Listener]
) -> None:
    leads, stands_by = listen(SCHEDULER_QUEUE), listen(SCHEDULER_QUEUE)
    for _ in range(3):
        with connected.platform.database.transaction() as tx:
            outbox.put_scheduler(tx, connected.clock())
        assert connected.platform.notifier.relay()
        assert len(leads.received()) == len(stands_by.received()) == 1
    for listener in (leads, stands_by):
        listener.close()
    until(lambda: _listeners(valkey) == 0)
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as client:
        before = client.dbsize()
        for _ in range(50):
            with connected.platform.database.transaction() as tx:
                outbox.put_scheduler(tx, connected.clock())
            assert connected.platform.notifier.relay()
        assert client.dbsize() == before
        assert not any(client.type(key) == b"list" for key in client.scan_iter())
