"""Our Celery application: queues and settings of whatever the scheduler sends to the broker, or takes from it.

Connects to nothing by itself.

Notifications to schedulers are broadcast: each scheduler that listens hears each, the one that leads and those that
stand by. The broker keeps none of them, so none pile up for a scheduler that is gone; who did not listen looks when
it begins to lead, and by its timer. A node's notifications wait in its own queue, the periodic tasks in one of theirs.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue

from edt_contract.broker import CELERY_SETTINGS, TRANSPORT_OPTIONS, WORKER_OPTIONS
from edt_scheduler.store.outbox import SCHEDULER_QUEUE

SEND_TIMEOUT_SECONDS = 2.0
"""So long one who sends waits for a broker that does not answer."""
SCHEDULERS = Queue(  # type: ignore[no-untyped-call]  # kombu has no types
    SCHEDULER_QUEUE,
    Exchange(SCHEDULER_QUEUE, type="fanout"),  # type: ignore[no-untyped-call]
    SCHEDULER_QUEUE,
    no_ack=True,
)
"""Heard by all schedulers. Not acknowledged: what was not, Redis' transport would put into a list that nobody reads."""
TASKS_QUEUE = "tasks"
"""What periodic tasks are to run, for the worker of the scheduler that leads."""


def celery_app(broker_url: str, *, sends: bool) -> Celery:
    """The application, for one who ``sends`` or for one who listens.

    Messages are JSON and are forgotten when done; there are no results, there is nothing to revoke or inspect.
    A sender gives up quickly; a listener waits for its broker for ever.
    """
    app = Celery("edt", broker=broker_url, set_as_current=False)
    transport = dict(TRANSPORT_OPTIONS)
    if sends:
        transport |= {
            "max_retries": 0,  # kombu would try for the whole timeout, with pauses of two seconds
            "socket_timeout": SEND_TIMEOUT_SECONDS,
            "socket_connect_timeout": SEND_TIMEOUT_SECONDS,
        }
    app.conf.update(
        CELERY_SETTINGS,
        task_queues=(SCHEDULERS,),
        result_serializer="json",
        result_expires=None,
        task_publish_retry=False,
        task_time_limit=60,
        broker_connection_timeout=SEND_TIMEOUT_SECONDS,
        broker_connection_max_retries=0 if sends else None,
        broker_transport_options=transport,
    )
    return app


def worker(app: Celery, queue: str, name: str, pool: str = "solo", **events: Any) -> Any:
    """A Celery worker of ``app`` on one queue, one task at a time, which says nothing but warnings."""
    return app.Worker(pool=pool, queues=[queue], hostname=f"{name}@edt", **WORKER_OPTIONS, **events)
