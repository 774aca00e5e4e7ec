"""What a route is given besides its own parameters: the open platform, its settings, and who asks.

Every route says here whom it opens to: by ``Viewer`` or ``AdminViewer`` where it needs to know who asks, by one of
``for_anyone``, ``for_users``, ``for_admins``, ``for_the_node`` and ``for_joiners`` among its ``dependencies`` where
it does not. The guard has asked the same of access/rules.py's table before; this is the second check, and it knows
nothing of that table. A test holds both against each other for every route.

All of it is ``async``: FastAPI would run an ordinary function in its shared threads, for which nodes must not wait
(concurrency.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from edt_api.access.guard import Authenticator
from edt_api.access.passwords import Passwords
from edt_api.access.rules import Audience, Caller, refusal
from edt_api.http import address
from edt_api.settings import Settings
from edt_api.submissions.uploads import Admission
from edt_scheduler.model import idempotency
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView


def kept(name: str) -> Any:
    """What the application keeps under this name."""

    async def found(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(found)


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _address(request: Request) -> str:
    return address(request.scope)


@dataclass(frozen=True)
class OpensTo:
    """A dependency that lets one kind of caller pass, and refuses every other as the guard would."""

    audience: Audience

    async def __call__(self, request: Request) -> Caller:
        caller = await _caller(request)
        refused = refusal(caller, self.audience, request.path_params.get("name"))
        if refused is not None:
            raise refused
        return caller


for_anyone = Depends(OpensTo(Audience.ANYONE))
for_users = Depends(OpensTo(Audience.USER))
for_admins = Depends(OpensTo(Audience.ADMIN))
for_the_node = Depends(OpensTo(Audience.NODE))
"""The node that the path calls ``name``."""
for_joiners = Depends(OpensTo(Audience.JOIN))


async def _viewer(caller: Annotated[Caller, for_users]) -> UserView:
    assert caller.user is not None  # nobody else has passed
    return caller.user


async def _admin(caller: Annotated[Caller, for_admins]) -> UserView:
    assert caller.user is not None
    return caller.user


ThePlatform = Annotated[Platform, kept("platform")]
TheSettings = Annotated[Settings, kept("settings")]
ThePasswords = Annotated[Passwords, kept("passwords")]
TheAuthenticator = Annotated[Authenticator, kept("authenticator")]
TheAdmission = Annotated[Admission, kept("admission")]
Stopping = Annotated[threading.Event, kept("stopping")]
"""Set once the server has been asked to stop: a request that waits is answered at once."""
TheCaller = Annotated[Caller, Depends(_caller)]
TheAddress = Annotated[str, Depends(_address)]
"""Where the request comes from."""
Viewer = Annotated[UserView, Depends(_viewer)]
"""The user who asks; the route opens to users."""
AdminViewer = Annotated[UserView, Depends(_admin)]
"""The admin who asks; the route opens to admins."""
TheKey = Annotated[str | None, Header(alias=idempotency.HEADER)]
"""The request's Idempotency-Key: whoever sends it again with the same key means the same thing, once."""
