"""The agent's errors, and how long it waits after them.

AgentError
├── BadSetting          a setting that cannot be used
├── HomeTaken           another agent of this name works in this home
├── StartFailed         a supervisor could not be started, or did not take its spec
│   ├── ImageMissing    the image that a job asks for does not exist
│   └── LauncherAway    whatever supervisors run in does not answer; ask again later
├── ApiUnreachable      no answer from the API; ask again later
└── ApiRefused          the API answered no
    └── NotKnownHere    the API does not accept the node's token (any more): register again
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)


class AgentError(Exception):
    """Something the agent cannot do."""


class BadSetting(AgentError):
    """A setting that cannot be used; the message names it and says what would do."""


class HomeTaken(AgentError):
    """Another agent of this name works in this home."""


class StartFailed(AgentError):
    """A supervisor could not be started, or ended before it had taken its spec."""


class ImageMissing(StartFailed):
    """The image that a job itself asks for does not exist: another start would end the same way."""


class LauncherAway(StartFailed):
    """What supervisors run in (the Docker daemon) does not answer. Nothing is wrong with the attempt."""


class ApiUnreachable(AgentError):
    """No answer from the API. Nothing is wrong with the node: ask again later."""


class ApiRefused(AgentError):
    """The API answered no."""

    def __init__(self, what: str, status: int, detail: str) -> None:
        super().__init__(f"the API refused {what}: {status} {detail}")


class NotKnownHere(ApiRefused):
    """The node's token is not, or no longer, accepted: the agent registers again."""


def backoff_seconds(failed: int) -> float:
    """How many seconds after the n-th failure in a row the next try is due: 1, 2, 4 … at most 60."""
    return min(60.0, 2.0 ** min(failed - 1, 6))


def retry_seconds(failed: int) -> float:
    """How many seconds after the n-th request in a row that the API did not answer it is asked again, at most 5."""
    return min(5.0, 0.2 * failed)


async def wait_until_set(event: asyncio.Event, *tasks: asyncio.Task[None], seconds: float | None = None) -> bool:
    """Wait until the event is set, one of the tasks is done, or so many seconds are over; whether the event is set."""
    event_set = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({event_set, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        event_set.cancel()
    return event.is_set()


def log_defect(task: asyncio.Task[None]) -> None:
    """Log the exception that ended a background task, if one did."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended by an error in OpenEDT", task.get_name(), exc_info=error)
