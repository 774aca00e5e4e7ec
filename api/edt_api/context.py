"""What a route is given besides its own parameters: the open house, its settings, and who asks. Room: api.

Every route says here whom it opens to: by ``Viewer`` or ``AdminViewer`` where it needs to know who asks, by one of
``for_anyone``, ``for_users``, ``for_admins``, ``for_the_node`` and ``for_joiners`` among its ``dependencies`` where
it does not. The guard has asked the same of access.py's table before; this is the second check, and it knows
nothing of that table. A test holds both against each other for every route.

All of it is ``async``: FastAPI would run an ordinary function in its shared threads, for which nodes must not wait
(threads.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.dependencies.models import Dependant

from edt_api.access import Caller, Door, refusal
from edt_api.admission import Admission
from edt_api.auth import Keeper
from edt_api.closing import Closing
from edt_api.feed import Feed
from edt_api.passwords import Passwords
from edt_api.proxies import address
from edt_api.settings import Settings
from edt_scheduler import once
from edt_scheduler.house import House
from edt_scheduler.views import UserView


async def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _passwords(request: Request) -> Passwords:
    passwords: Passwords = request.app.state.passwords
    return passwords


async def _keeper(request: Request) -> Keeper:
    keeper: Keeper = request.app.state.keeper
    return keeper


async def _admission(request: Request) -> Admission:
    admission: Admission = request.app.state.admission
    return admission


async def _closing(request: Request) -> Closing:
    closing: Closing = request.app.state.closing
    return closing


async def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _address(request: Request) -> str:
    return address(request.scope)


@dataclass(frozen=True)
class OpensTo:
    """A dependency that lets one kind of caller pass, and refuses every other as the guard would."""

    whose: Door

    async def __call__(self, request: Request) -> Caller:
        caller = await _caller(request)
        refused = refusal(caller, self.whose, request.path_params.get("name"))
        if refused is not None:
            raise refused
        return caller


def declared(dependant: Dependant) -> set[Door]:
    """The doors that a route declares, itself or by what it depends on."""
    own = {dependant.call.whose} if isinstance(dependant.call, OpensTo) else set()
    return own.union(*(declared(each) for each in dependant.dependencies))


for_anyone = Depends(OpensTo(Door.ANYONE))
for_users = Depends(OpensTo(Door.USER))
for_admins = Depends(OpensTo(Door.ADMIN))
for_the_node = Depends(OpensTo(Door.NODE))
"""The node that the path calls ``name``."""
for_joiners = Depends(OpensTo(Door.JOIN))


async def _viewer(caller: Annotated[Caller, for_users]) -> UserView:
    assert caller.user is not None  # nobody else has passed
    return caller.user


async def _admin(caller: Annotated[Caller, for_admins]) -> UserView:
    assert caller.user is not None
    return caller.user


TheHouse = Annotated[House, Depends(_house)]
TheSettings = Annotated[Settings, Depends(_settings)]
ThePasswords = Annotated[Passwords, Depends(_passwords)]
TheKeeper = Annotated[Keeper, Depends(_keeper)]
TheAdmission = Annotated[Admission, Depends(_admission)]
TheClosing = Annotated[Closing, Depends(_closing)]
TheFeed = Annotated[Feed, Depends(_feed)]
TheCaller = Annotated[Caller, Depends(_caller)]
TheAddress = Annotated[str, Depends(_address)]
"""Where the request comes from."""
Viewer = Annotated[UserView, Depends(_viewer)]
"""The user who asks; the route opens to users."""
AdminViewer = Annotated[UserView, Depends(_admin)]
"""The admin who asks; the route opens to admins."""
TheKey = Annotated[str | None, Header(alias=once.HEADER)]
"""The request's Idempotency-Key: whoever sends it again with the same key means the same thing, once."""
