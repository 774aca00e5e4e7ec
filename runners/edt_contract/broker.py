"""Celery names and settings that the scheduler and the agents share, and the first steps of every Celery worker.

The scheduler sends notifications, and the agent's listener receives them. A notification makes the agent ask the API
for its assignments, and nothing more. If it is lost, the agent asks some seconds later; if it comes twice, nothing
changes.
"""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Mapping
from typing import Any

from edt_contract.processes import die_with

NOTIFICATION_TASK = "edt.assignments_changed"
"""The Celery task that notifies an agent. Its arguments are the node's name and the version of its assignments."""

TRANSPORT_OPTIONS: Mapping[str, Any] = {
    "global_keyprefix": "edt:",
    "visibility_timeout": 600,
    "unacked_restore_throttle": 1,
    "health_check_interval": 10,
    "socket_keepalive": True,
}
"""Options of the broker's transport. Sender and receiver must use the same ones."""

CELERY_SETTINGS: Mapping[str, Any] = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    "worker_prefetch_multiplier": 1,
    "worker_enable_remote_control": False,  # a message must not be able to shut a worker down
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "broker_connection_retry_on_startup": True,
}
"""Settings of every Celery application. Messages are JSON, and Celery stores no results."""

WORKER_OPTIONS: Mapping[str, Any] = {
    "concurrency": 1,
    "loglevel": "WARNING",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
    "quiet": True,
}
"""Options of every Celery worker: it runs one task at a time and logs only warnings."""


def node_queue(node: str) -> str:
    """The Celery queue of one node's notifications."""
    return f"node.{node}"


def begin_worker(parent: int, logger: str = "%(name)s") -> None:
    """Prepare this process to run a Celery worker: it dies with its parent and logs only warnings.

    Args:
        parent: the parent's pid.
        logger: the name in each log line, as text or as a logging format.
    """
    die_with(parent)
    # Ctrl-C in a terminal reaches all processes of the foreground group; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", module=r"celery\.")
    logging.basicConfig(level=logging.WARNING, format=f"%(levelname)s {logger}: %(message)s")
