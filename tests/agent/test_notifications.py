"""Notifications through a real Valkey and real Celery: one wakes the agent, without one its timer does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from celery import Celery

from edt_contract.broker import NOTIFICATION_TASK, TRANSPORT_OPTIONS, node_queue
from support.broker import start_valkey
from support.fake_api import FakeApi
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

    def notify(self, node: str, *ids: object) -> None:
        """As the scheduler does."""
        app = Celery(broker=self.url)
        app.conf.broker_transport_options = {"global_keyprefix": TRANSPORT_OPTIONS["global_keyprefix"]}
        with app.connection_for_write() as connection:
            queue = node_queue(node)
            app.send_task(NOTIFICATION_TASK, args=ids, queue=queue, expires=60, connection=connection)
        app.close()


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("v"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def api(broker: Broker) -> Iterator[FakeApi]:
    with FakeApi(broker.url) as api:
        yield api


def asked(api: FakeApi, woken_by: str) -> list[dict[str, str]]:
    return [dict(each) for each in api.questions if each["woken_by"] == woken_by]


@pytest.mark.timeout(300)  # the last of it may take its five seconds twelve times
def test_a_notification_wakes_the_agent_at_once_and_without_a_broker_its_timer_does(node, api, broker):
    node.start(EDT_AGENT_TICK_SECONDS="600")
    until(lambda: asked(api, "start"))
    broker.notify("n1", "n1", 1)  # kept by the broker until the worker listens
    until(lambda: asked(api, "notification"), what="the first notification arrives")

    api.want(node.assignment())
    broker.notify("n1", "n1", 2)
    until(lambda: "engine-started" in api.kinds("edt-1/1"), what="a notification does not wait for the timer")

    broker.notify("n1", "n1", 3)
    broker.notify("n1", "n1", 3)
    until(lambda: len(asked(api, "notification")) >= 3, what="a doubled notification changes nothing")
    assert api.kinds("edt-1/1").count("attempt-started") == 1

    node.signal(signal.SIGTERM)
    before = len(asked(api, "notification"))
    node.start(EDT_AGENT_TICK_SECONDS="2")
    broker.notify("n1", "n1", 4)
    until(lambda: len(asked(api, "notification")) > before, what="the next agent's worker has been connected")
    broker.kill()
    before = len(asked(api, "timer"))
    until(lambda: len(asked(api, "timer")) > before, what="nobody rings any more")
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2, what="the timer serves")

    broker.start()
    before = len(asked(api, "notification"))

    # Celery's worker may come back deaf (an acknowledgement that it could not send). A ring comes with a change, and
    # changes that nobody rang for are what the agent tells a deaf worker by.
    def changed_and_rung_in_vain(number: int) -> bool:
        api.want(node.assignment(slots=1 + number % 2))
        broker.notify("n1", "n1", number)
        with suppress(AssertionError):
            until(lambda: len(asked(api, "notification")) > before, 5)
        return len(asked(api, "notification")) == before

    assert not all(changed_and_rung_in_vain(number) for number in range(5, 17)), "the worker is well again by itself"
