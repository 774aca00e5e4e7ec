"""The doorbell, through a real Valkey and real Celery: woken by a ring, by the timer without one, well again after."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from celery import Celery

from edt_runner.contract import BROKER_KEY_PREFIX, DOORBELL_TASK, node_queue
from support.broker import start_valkey
from support.desk import Desk
from support.waiting import until


class Broker:
    """A Valkey on a unix socket that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "v.sock"
        self.url = f"redis+socket://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = start_valkey(self.socket)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ring(self, node: str, *ids: object) -> None:
        """As the scheduler does."""
        app = Celery(broker=self.url)
        app.conf.broker_transport_options = {"global_keyprefix": BROKER_KEY_PREFIX}
        with app.connection_for_write() as connection:
            queue = node_queue(node)
            app.send_task(DOORBELL_TASK, args=ids, queue=queue, expires=60, connection=connection)
        app.close()


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("v"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def desk(broker: Broker) -> Iterator[Desk]:
    with Desk(broker.url) as desk:
        yield desk


def asked(desk: Desk, woken_by: str) -> list[dict[str, str]]:
    return [dict(each) for each in desk.questions if each["woken_by"] == woken_by]


@pytest.mark.timeout(300)  # the last of it may take its five seconds twelve times
def test_a_ring_wakes_the_agent_at_once_and_a_dead_broker_leaves_it_to_the_timer(node, desk, broker):
    node.start(EDT_AGENT_TICK_SECONDS="600")
    until(lambda: asked(desk, "start"))
    broker.ring("n1", "n1", 1)  # kept by the broker until the worker listens
    until(lambda: asked(desk, "doorbell"), what="the first ring is heard")

    desk.want(node.assignment())
    broker.ring("n1", "n1", 2)
    until(lambda: "engine-started" in desk.kinds("edt-1/1"), what="a ring does not wait for the timer")

    broker.ring("n1", "n1", 3)
    broker.ring("n1", "n1", 3)
    until(lambda: len(asked(desk, "doorbell")) >= 3, what="a doubled ring changes nothing")
    assert desk.kinds("edt-1/1").count("attempt-started") == 1

    node.signal(signal.SIGTERM)
    before = len(asked(desk, "doorbell"))
    node.start(EDT_AGENT_TICK_SECONDS="2")
    broker.ring("n1", "n1", 4)
    until(lambda: len(asked(desk, "doorbell")) > before, what="the next agent's worker has been connected")
    broker.kill()
    before = len(asked(desk, "timer"))
    until(lambda: len(asked(desk, "timer")) > before, what="nobody rings any more")
    desk.want(node.assignment(slots=2))
    until(lambda: desk.kinds("edt-1/1").count("engine-started") == 2, what="the timer serves")

    broker.start()
    before = len(asked(desk, "doorbell"))

    # Celery's worker may come back deaf (an acknowledgement that it could not send). A ring comes with a change, and
    # changes that nobody rang for are what the agent tells a deaf worker by.
    def changed_and_rung_in_vain(number: int) -> bool:
        desk.want(node.assignment(slots=1 + number % 2))
        broker.ring("n1", "n1", number)
        with suppress(AssertionError):
            until(lambda: len(asked(desk, "doorbell")) > before, 5)
        return len(asked(desk, "doorbell")) == before

    assert not all(changed_and_rung_in_vain(number) for number in range(5, 17)), "the worker is well again by itself"
