"""Doorbells over a real broker: what they carry, what a dead broker costs, and that they decide nothing."""

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

from edt_runner.contract import DOORBELL_TASK, ExitKind, node_queue
from edt_scheduler import broker, operations
from edt_scheduler.broker import SCHEDULERS, celery_app
from edt_scheduler.doorbell import Doorbells
from edt_scheduler.house import House
from edt_scheduler.reconcile import look
from edt_scheduler.store import outbox
from edt_scheduler.store.outbox import SCHEDULER_QUEUE, TICK_TASK
from support.broker import start_valkey
from support.puppets import Stage
from support.waiting import until

Message = tuple[str, list[Any]]
PATIENCE = 20.0
"""With a broker that hangs, where a test shows that only the relay has it."""


class Bell:
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

    def heard(self, seconds: float = 30.0, still: float = 0.05) -> list[Message]:
        """What rings within ``seconds``, and after the first ring until it has been still for a moment."""
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
    """How many hear what is broadcast."""
    with redis.Redis(unix_socket_path=url.removeprefix("redis+socket://")) as client:
        return sum(int(each["psub"]) for each in client.client_list())


class RungByHand(Doorbells):
    """Only ``relay`` rings."""

    def ring(self) -> None:
        """Later."""


@pytest.fixture
def listen(valkey: str) -> Iterator[Callable[[str], Bell]]:
    bells: list[Bell] = []

    def one(name: str) -> Bell:
        bells.append(Bell(valkey, name))
        return bells[-1]

    yield one
    for bell in bells:
        bell.close()


@pytest.fixture
def rung(sqlite_stage: Stage, valkey: str) -> Iterator[Stage]:
    """A house with a broker."""
    yield from _with_broker(sqlite_stage, valkey)


def _with_broker(stage: Stage, url: str) -> Iterator[Stage]:
    house = stage.house
    doorbells = Doorbells(house.database, url, house.clock)
    yield Stage(House(house.database, doorbells, house.settings, house.clock), stage.clock, stage.admin)
    doorbells.close()


def waiting(stage: Stage) -> int:
    with stage.house.database.snapshot() as tx:
        return len(outbox.pending(tx))


def test_a_submit_rings_the_scheduler_and_a_decision_rings_the_node(rung: Stage, listen: Callable[[str], Bell]) -> None:
    scheduler, node = listen(SCHEDULER_QUEUE), listen(node_queue("n1"))
    rung.node()
    job = rung.submit()
    assert {task for task, _ in scheduler.heard()} == {TICK_TASK}
    assert node.heard(0.01) == []
    look(rung.house)
    version = operations.assignments_version(rung.house, "n1")
    assert node.heard() == [(DOORBELL_TASK, ["n1", version])]
    until(lambda: waiting(rung) == 0)
    (resize,) = operations.resizes(rung.house, job, viewer=rung.admin)
    assert resize.rung_at == rung.clock.now


def test_nothing_that_rolled_back_rings(rung: Stage, listen: Callable[[str], Bell]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    with pytest.raises(ZeroDivisionError), rung.house.database.transaction() as tx:
        outbox.put_scheduler(tx, 1.0)
        raise ZeroDivisionError
    rung.house.doorbells.ring()
    assert scheduler.heard(0.2) == []


def test_many_doorbells_of_one_queue_ring_once(rung: Stage, listen: Callable[[str], Bell]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    with rung.house.database.transaction() as tx:
        for _ in range(50):
            outbox.put_scheduler(tx, rung.clock())
    assert rung.house.doorbells.relay()
    assert len(scheduler.heard()) == 1


def test_a_dead_broker_holds_nobody_up_and_what_is_too_old_to_ring_is_dropped(
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
        assert not stage.house.doorbells.relay()
        assert waiting(stage) > 0
        stage.clock.pass_(61)
        stage.house.doorbells.relay()
        assert waiting(stage) == 0


def test_what_could_not_ring_rings_when_the_broker_is_back(sqlite_stage: Stage, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    for stage in _with_broker(sqlite_stage, f"redis+socket://{socket}"):
        stage.node()
        stage.submit()
        look(stage.house)
        assert not stage.house.doorbells.relay()
        valkey = start_valkey(socket)
        try:
            bell = Bell(f"redis+socket://{socket}", node_queue("n1"))
            assert [task for task, _ in bell.heard()] == [DOORBELL_TASK]
            bell.close()
        finally:
            valkey.kill()
            valkey.wait()


@pytest.mark.parametrize("times", [0, 1, 2], ids=["dropped", "delivered", "doubled"])
def test_messages_decide_nothing(sqlite_stage: Stage, valkey: str, listen: Callable[[str], Bell], times: int) -> None:
    """The same story with every message dropped, delivered and doubled has the same history of allocations."""
    scheduler, bell = listen(SCHEDULER_QUEUE), listen(node_queue("n1"))
    bells = RungByHand(sqlite_stage.house.database, valkey, sqlite_stage.clock)
    rung = replace(sqlite_stage, house=replace(sqlite_stage.house, doorbells=bells))
    node = rung.node()

    def ring(listens: Bell, name: str) -> list[Message]:
        """What is to ring on a queue rings before anything else happens."""
        with rung.house.database.snapshot() as tx:
            due = any(row.queue == name for row in outbox.pending(tx))
        assert bells.relay()
        return listens.heard() * times if due else []

    def come_to_rest() -> None:
        still = False
        while not still:
            moved = [look(rung.house) for _ in ring(scheduler, SCHEDULER_QUEUE)]
            told = len(node.told)
            for _ in ring(bell, node_queue("n1")):
                node.obey("doorbell")
            moved.append(look(rung.house))  # the timers
            node.obey("timer")
            still = not any(moved) and told == len(node.told)

    a = rung.submit()
    come_to_rest()
    b = rung.submit()
    come_to_rest()
    node.end((b, 1), ExitKind.FINISHED)
    come_to_rest()
    timeline = operations.timeline(rung.house, viewer=rung.admin)
    history = [(held.exec_id, held.fence, held.slot, held.kind) for held in timeline.allocations]
    assert history == [
        (a, 1, "0", None),
        (a, 1, "1", None),
        (a, 1, "2", ExitKind.LEFT),
        (a, 1, "3", ExitKind.LEFT),
        (b, 1, "2", ExitKind.FINISHED),
        (b, 1, "3", ExitKind.FINISHED),
        (a, 1, "2", None),
        (a, 1, "3", None),
    ]
    resizes = [each for job in timeline.jobs for each in operations.resizes(rung.house, job, viewer=rung.admin)]
    woken = {resize.woken_by for resize in resizes}
    assert ("timer" in woken) if times == 0 else ("doorbell" in woken)
    bells.close()


def test_a_slow_relay_never_drops_a_doorbell_that_it_has_not_rung(stage: Stage) -> None:
    """A number that another relay has cleared away meanwhile must not come back on a new doorbell."""
    numbers = []
    for _ in range(3):
        with stage.house.database.transaction() as tx:
            outbox.put_scheduler(tx, stage.clock())
            numbers += [row.id for row in outbox.pending(tx)]
        assert stage.house.doorbells.relay()
    assert len(set(numbers)) == 3


def test_two_relays_at_once_ring_at_most_twice(rung: Stage, listen: Callable[[str], Bell]) -> None:
    scheduler = listen(SCHEDULER_QUEUE)
    other = replace(rung.house, doorbells=Doorbells(rung.house.database, "", rung.clock))
    with rung.house.database.transaction() as tx:
        outbox.put_scheduler(tx, rung.clock())
    assert rung.house.doorbells.relay()
    assert other.doorbells.relay()
    assert len(scheduler.heard()) == 1


def test_a_broker_that_hangs_holds_no_submit_up_and_rings_again_when_it_goes_on(
    sqlite_stage: Stage, valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "SEND_TIMEOUT_SECONDS", PATIENCE)
    for stage in _with_broker(sqlite_stage, valkey):
        _hangs_for_a_while(stage, valkey)


def _hangs_for_a_while(rung: Stage, valkey: str) -> None:
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as broker:
        pid = broker.info("server")["process_id"]
    rung.submit()
    until(lambda: waiting(rung) == 0)
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        rung.submit()
        assert time.monotonic() - began < PATIENCE / 2, "the relay waits for the broker, nobody else does"
        assert waiting(rung) > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: waiting(rung) == 0)
    rung.submit()
    until(lambda: waiting(rung) == 0)


def test_a_broker_that_forgot_everything_costs_a_tick_and_rings_on(
    rung: Stage, valkey: str, listen: Callable[[str], Bell]
) -> None:
    bell = listen(SCHEDULER_QUEUE)
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as broker:
        rung.submit()
        until(lambda: waiting(rung) == 0)
        broker.flushall()
        job = rung.submit()
        assert (TICK_TASK, []) in bell.heard()
        assert rung.job(job).exec_id == job
        broker.flushall()
        assert look(rung.house), "what it was rung for is in the database"


def test_a_broker_without_memory_refuses_doorbells_and_no_submit(
    rung: Stage, valkey: str, listen: Callable[[str], Bell]
) -> None:
    bell = listen(node_queue("n1"))
    rung.node()
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        began = time.monotonic()
        rung.submit()
        assert time.monotonic() - began < PATIENCE / 2
        look(rung.house)
        assert not rung.house.doorbells.relay()
        assert waiting(rung) > 0
        client.config_set("maxmemory", 0)
    assert [task for task, _ in bell.heard()] == [DOORBELL_TASK]
    until(lambda: waiting(rung) == 0)


def test_each_scheduler_hears_each_and_nothing_waits_for_those_that_are_gone(
    rung: Stage, valkey: str, listen: Callable[[str], Bell]
) -> None:
    leads, stands_by = listen(SCHEDULER_QUEUE), listen(SCHEDULER_QUEUE)
    for _ in range(3):
        with rung.house.database.transaction() as tx:
            outbox.put_scheduler(tx, rung.clock())
        assert rung.house.doorbells.relay()
        assert len(leads.heard()) == len(stands_by.heard()) == 1
    for bell in (leads, stands_by):
        bell.close()
    until(lambda: _listeners(valkey) == 0)
    with redis.Redis(unix_socket_path=valkey.removeprefix("redis+socket://")) as client:
        before = client.dbsize()
        for _ in range(50):
            with rung.house.database.transaction() as tx:
                outbox.put_scheduler(tx, rung.clock())
            assert rung.house.doorbells.relay()
        assert client.dbsize() == before
        assert not any(client.type(key) == b"list" for key in client.scan_iter())
