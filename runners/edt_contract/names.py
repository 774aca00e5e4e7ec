"""Names and settings that two sides must write alike: of files in a job's folders, which one process writes and another
one reads, and of what the scheduler notifies agents with through the broker.

A notification only says: ask the API for your assignments. The scheduler sends it, and the agent's listener receives
it. A lost one costs some seconds, a doubled one nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAFT_PREFIX = ".draft-"
"""The names of files and folders begin with this while they are being written beside what a user will take away.
An engine or a driver writes them; the API does not show them."""

FENCE_FILE = "fence"
"""In a job's checkpoint folder: the lowest fence whose processes may still live, as decimal digits. The scheduler
writes it. A supervisor of an older fence ends itself, and no engine writes a checkpoint under an older one: shared
storage reaches processes that messages cannot reach."""

ATTEMPT_FILE = "attempt.json"
"""In a supervisor's spool folder: which process it is, of which attempt, and its socket. The supervisor writes it
before any user code runs; the agent reads it where its own record was lost."""

REPORTS_FILE = "reports.jsonl"
"""In a supervisor's spool folder: its reports, one a line. The supervisor writes it, and where that is gone the agent;
the agent reads it."""

USAGE_FILE = "usage.json"
"""In a supervisor's spool folder: ``{"time", "engines": {allocation: {"slot", "cpu_seconds", "rss_bytes"}}}``, where
each engine counts with all that it has started. ``time`` is the machine's monotonic clock in seconds. The supervisor
writes it every few seconds; the agent reads it."""

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
