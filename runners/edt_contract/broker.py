"""What the scheduler and the agents must set and name alike to meet at the broker, and how any Celery worker begins.

A notification only says: ask the API for your assignments. The scheduler sends it, and the agent's listener receives
it. A lost one costs some seconds, a doubled one nothing.
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
"""The broker's transport, for whoever sends and whoever listens: its keys must be the same for both."""

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
"""Settings of every Celery application. Messages are JSON and are forgotten when done; there is nothing to inspect."""

WORKER_OPTIONS: Mapping[str, Any] = {
    "concurrency": 1,
    "loglevel": "WARNING",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
    "quiet": True,
}
"""Every Celery worker does one task at a time and says nothing but warnings."""


def node_queue(node: str) -> str:
    """The Celery queue of one node's notifications."""
    return f"node.{node}"


def begin_worker(parent: int, logger: str = "%(name)s") -> None:
    """Begin a process that is to run a Celery worker: it ends with ``parent``, and logs warnings."""
    die_with(parent)
    # Ctrl-C in a terminal reaches all processes of the foreground group; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", module=r"celery\.")
    logging.basicConfig(level=logging.WARNING, format=f"%(levelname)s {logger}: %(message)s")
