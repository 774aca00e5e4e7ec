"""What a route is given besides its own parameters: the open house, its settings, and who asks. Room: api.

All of it is ``async``: FastAPI would run an ordinary function in its shared threads, for which nodes must not wait
(threads.py).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from edt_api.access import Caller
from edt_api.auth import Keeper
from edt_api.closing import Closing
from edt_api.errors import Forbidden
from edt_api.feed import Feed
from edt_api.passwords import Passwords
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


async def _closing(request: Request) -> Closing:
    closing: Closing = request.app.state.closing
    return closing


async def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _viewer(request: Request) -> UserView:
    """The user who asks. The guard lets nobody else in where a route asks for one; this says so once more."""
    caller: Caller = request.state.caller
    user = caller.user
    if user is None:
        raise Forbidden("this is open to a user only")
    return user


TheHouse = Annotated[House, Depends(_house)]
TheSettings = Annotated[Settings, Depends(_settings)]
ThePasswords = Annotated[Passwords, Depends(_passwords)]
TheKeeper = Annotated[Keeper, Depends(_keeper)]
TheClosing = Annotated[Closing, Depends(_closing)]
TheFeed = Annotated[Feed, Depends(_feed)]
TheCaller = Annotated[Caller, Depends(_caller)]
Viewer = Annotated[UserView, Depends(_viewer)]
TheKey = Annotated[str | None, Header(alias=once.HEADER)]
"""The request's Idempotency-Key: whoever sends it again with the same key means the same thing, once."""
