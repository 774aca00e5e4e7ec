"""Room: runners, agent. What can go wrong in it.

AgentError
├── BadSetting          a setting that cannot be used
├── HomeTaken           another agent of this name works in this home
├── StartFailed         a supervisor could not be started, or did not take its letter
│   ├── ImageMissing    the image that a job asks for does not exist
│   └── LauncherAway    whatever supervisors run in does not answer; ask again later
├── ApiUnreachable      no answer from the API; ask again later
└── ApiRefused          the API answered no
    └── NotKnownHere    the node's token is not (or no longer) accepted: register again
"""

from __future__ import annotations


class AgentError(Exception):
    """Something the agent cannot do."""

    code = "agent"


class BadSetting(AgentError):
    """A setting that cannot be used; the message names it and says what would do."""

    code = "bad-setting"


class HomeTaken(AgentError):
    """Another agent of this name works in this home."""

    code = "home-taken"


class StartFailed(AgentError):
    """A supervisor could not be started, or ended before it had taken its letter."""

    code = "start-failed"


class ImageMissing(StartFailed):
    """The image that a job itself asks for does not exist: another start would end the same way."""

    code = "image-missing"


class LauncherAway(StartFailed):
    """Whatever supervisors run in (the Docker daemon) does not answer. Nothing is wrong with the attempt."""

    code = "launcher-away"


class ApiUnreachable(AgentError):
    """No answer from the API. Nothing is wrong with the node: ask again later."""

    code = "api-unreachable"


class ApiRefused(AgentError):
    """The API answered no."""

    code = "api-refused"

    def __init__(self, what: str, status: int, detail: str) -> None:
        super().__init__(f"the API refused {what}: {status} {detail}")
        self.status = status


class NotKnownHere(ApiRefused):
    """The node's token is not, or no longer, accepted: the agent registers again."""

    code = "not-known-here"
