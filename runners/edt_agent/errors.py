"""The agent's errors, and the pauses after them.

AgentError
├── BadSetting          a setting cannot be used
├── HomeTaken           another agent of this name works in this home
├── StartFailed         a supervisor could not be started, or did not take its spec
│   ├── ImageMissing    the image that a job asks for does not exist
│   └── LauncherAway    the Docker daemon does not answer; try again later
├── ApiUnreachable      the API does not answer; try again later
└── ApiRefused          the API refuses a request
    └── NotKnownHere    the API does not accept the node's token; register again
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)


class AgentError(Exception):
    """Base class: the agent cannot do something."""


class BadSetting(AgentError):
    """A setting cannot be used. The message names the setting and the allowed values."""


class HomeTaken(AgentError):
    """Another agent of this name works in this home."""


class StartFailed(AgentError):
    """A supervisor could not be started, or ended before it had taken its spec."""


class ImageMissing(StartFailed):
    """The image that a job asks for does not exist. Another start would fail in the same way."""


class LauncherAway(StartFailed):
    """The Docker daemon does not answer. The attempt is not at fault; try again later."""


class ApiUnreachable(AgentError):
    """The API does not answer, or its answer cannot be read. The node is not at fault; ask again later."""


class ApiRefused(AgentError):
    """The API refuses a request.

    Args:
        what: the request, in words.
        status: the HTTP status.
        detail: the API's reason.
    """

    def __init__(self, what: str, status: int, detail: str) -> None:
        super().__init__(f"the API refused {what}: {status} {detail}")


class NotKnownHere(ApiRefused):
    """The API does not accept the node's token, or no longer. The agent must register again."""


def backoff_seconds(failed: int) -> float:
    """Seconds to wait after the n-th failure in a row before the next try: 1, 2, 4 … at most 60."""
    return min(60.0, 2.0 ** min(failed - 1, 6))


def retry_seconds(failed: int) -> float:
    """Seconds to wait after the n-th request in a row that the API did not answer: 0.2, 0.4 … at most 5."""
    return min(5.0, 0.2 * failed)


async def wait_until_set(event: asyncio.Event, *tasks: asyncio.Task[None], seconds: float | None = None) -> bool:
    """Wait until the event is set, one of the tasks is done, or the time is over.

    Args:
        event: the event.
        tasks: the tasks.
        seconds: the longest wait; None: no limit.

    Returns:
        Whether the event is set.
    """
    event_set = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({event_set, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        event_set.cancel()
    return event.is_set()


def log_defect(task: asyncio.Task[None]) -> None:
    """Log the exception that ended a background task, if there was one."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended by an error in OpenEDT", task.get_name(), exc_info=error)
