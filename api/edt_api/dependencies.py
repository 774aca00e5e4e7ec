"""What FastAPI passes to routes besides their own parameters: the open platform, its settings, and the caller.

Each route declares here who may call it. A route that needs the caller takes ``Viewer``, ``ReadingViewer``,
``AccountViewer`` or ``AdminViewer``. Every other route has one of ``for_anyone``, ``for_users``, ``for_readers``,
``for_accounts``, ``for_admins``, ``for_the_node``, ``for_joiners`` and ``for_joining_nodes`` among its
``dependencies``. The guard has checked the table of access/rules.py before. The check here is the second one and does
not use that table. A test compares both for every route.

All dependencies are ``async``: FastAPI would run ordinary functions in its shared threads, and requests of nodes must
not wait for those (concurrency.py).
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from edt_api.access.guard import Authenticator
from edt_api.access.passwords import Passwords
from edt_api.access.rules import Audience, Caller, refusal, wrong_joiner
from edt_api.concurrency import Gathered
from edt_api.http import address
from edt_api.job_files.following import LogFollowing
from edt_api.settings import Settings
from edt_api.submissions.uploads import Admission
from edt_contract.pools import node_token
from edt_scheduler.model import idempotency
from edt_scheduler.operations.submitting import StagedSubmission
from edt_scheduler.platform import Platform
from edt_scheduler.views import JobView, UserView


def kept(name: str) -> Any:
    """Return a dependency that gives the attribute of this name of the application's state."""

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
    """A dependency that admits callers of one audience and refuses all others with the guard's own errors."""

    audience: Audience

    async def __call__(self, request: Request) -> Caller:
        caller = await _caller(request)
        refused = refusal(caller, self.audience, request.path_params.get("name"), request.method)
        if refused is not None:
            raise refused
        if self.audience is Audience.NODE_JOIN and not caller.joins:
            await _check_name(request, caller)
        return caller


async def _check_name(request: Request, caller: Caller) -> None:
    """Refuse a caller whose token is not that of the node that it registers."""
    try:
        body = await request.json()
    except ValueError:
        body = None
    name = body.get("name") if isinstance(body, dict) else None
    authenticator: Authenticator = request.app.state.authenticator
    expected = node_token(authenticator.join_token, name if isinstance(name, str) else "")
    if not hmac.compare_digest(expected.encode(), (caller.token or "").encode()):
        raise wrong_joiner()


for_anyone = Depends(OpensTo(Audience.ANYONE))
for_users = Depends(OpensTo(Audience.USER))
"""Admits every user. What changes something, by its method, is refused to viewers and to tokens that only read."""
for_readers = Depends(OpensTo(Audience.READER))
"""Admits every user. The route changes nothing, though its method could."""
for_accounts = Depends(OpensTo(Audience.ACCOUNT))
"""Admits every user, viewers too, who shows no API token."""
for_admins = Depends(OpensTo(Audience.ADMIN))
for_the_node = Depends(OpensTo(Audience.NODE))
"""Admits only the node whose name is the path parameter ``name``."""
for_joiners = Depends(OpensTo(Audience.JOIN))
for_joining_nodes = Depends(OpensTo(Audience.NODE_JOIN))
"""Admits whoever holds the join token, and a node that shows the token of the name with which it registers."""


async def _viewer(caller: Annotated[Caller, for_users]) -> UserView:
    assert caller.user is not None  # for_users has refused all other callers
    return caller.user


async def _reader(caller: Annotated[Caller, for_readers]) -> UserView:
    assert caller.user is not None
    return caller.user


async def _admin(caller: Annotated[Caller, for_admins]) -> UserView:
    assert caller.user is not None
    return caller.user


async def _account(caller: Annotated[Caller, for_accounts]) -> UserView:
    assert caller.user is not None
    return caller.user


ThePlatform = Annotated[Platform, kept("platform")]
TheSettings = Annotated[Settings, kept("settings")]
ThePasswords = Annotated[Passwords, kept("passwords")]
TheAuthenticator = Annotated[Authenticator, kept("authenticator")]
TheAdmission = Annotated[Admission, kept("admission")]
TheSubmits = Annotated[Gathered[StagedSubmission, JobView], kept("submits")]
"""Makes jobs of submissions, together of those that come at the same time."""
Stopping = Annotated[threading.Event, kept("stopping")]
"""Set when the server has been asked to stop. Requests that wait are then answered at once."""
TheCaller = Annotated[Caller, Depends(_caller)]
TheAddress = Annotated[str, Depends(_address)]
"""The address from which the request comes."""
Viewer = Annotated[UserView, Depends(_viewer)]
"""The user who sends the request. The route is open to users."""
ReadingViewer = Annotated[UserView, Depends(_reader)]
"""The user who sends the request. The route is open to readers."""
AccountViewer = Annotated[UserView, Depends(_account)]
"""The user who sends the request by password, session or a token of signing in. The route is about the user's own
account.
"""
AdminViewer = Annotated[UserView, Depends(_admin)]
"""The admin who sends the request. The route is open to admins."""
TheFollowing = Annotated[LogFollowing, kept("following")]
TheKey = Annotated[str | None, Header(alias=idempotency.HEADER)]
"""The request's Idempotency-Key. Repeated requests with the same key have the effect of one request."""
