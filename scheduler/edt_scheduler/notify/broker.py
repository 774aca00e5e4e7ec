"""The scheduler's Celery application: the queues and settings for all messages that it sends or receives.

This module does not connect to anything by itself.

Notifications to schedulers are broadcast: each scheduler that listens gets each of them, also those that stand by. The
broker keeps none of them, so they do not pile up for a scheduler that is gone. A scheduler that did not listen looks
when it begins to lead, and after that by its timer. Notifications of a node wait in that node's queue, and periodic
tasks wait in a queue of their own.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue

from edt_contract.broker import CELERY_SETTINGS, TRANSPORT_OPTIONS, WORKER_OPTIONS
from edt_scheduler.store.outbox import SCHEDULER_QUEUE

SEND_TIMEOUT_SECONDS = 2.0
"""How long a sender waits for a broker that does not answer, in seconds."""
SCHEDULERS = Queue(  # type: ignore[no-untyped-call]  # kombu has no types
    SCHEDULER_QUEUE,
    Exchange(SCHEDULER_QUEUE, type="fanout"),  # type: ignore[no-untyped-call]
    SCHEDULER_QUEUE,
    no_ack=True,
)
"""The queue that all schedulers hear.

Messages here need no acknowledgement: Redis' transport would move a message that was not acknowledged into a list that
no process reads.
"""
TASKS_QUEUE = "tasks"
"""The queue of the periodic tasks, for the worker of the scheduler that leads."""


def celery_app(broker_url: str, *, sends: bool) -> Celery:
    """The Celery application, for a process that sends or for one that listens.

    Messages are JSON and are forgotten when done. There are no results, and tasks cannot be revoked or inspected. A
    sender gives up quickly. A listener waits for its broker without limit.

    Args:
        broker_url: URL of the broker.
        sends: True for a sender, False for a listener.
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
    """A Celery worker for one queue. It runs one task at a time and logs only warnings.

    Args:
        app: the Celery application.
        queue: name of the queue.
        name: name of the worker, to which ``@edt`` is added.
        pool: Celery's pool: ``solo`` runs tasks in this process, ``prefork`` in a child process.
        events: further arguments of Celery's ``Worker``.
    """
    return app.Worker(pool=pool, queues=[queue], hostname=f"{name}@edt", **WORKER_OPTIONS, **events)
