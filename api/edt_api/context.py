"""What a route is given besides its own parameters: the open house, its settings, and who asks. Room: api."""

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


def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _passwords(request: Request) -> Passwords:
    passwords: Passwords = request.app.state.passwords
    return passwords


def _keeper(request: Request) -> Keeper:
    keeper: Keeper = request.app.state.keeper
    return keeper


def _closing(request: Request) -> Closing:
    closing: Closing = request.app.state.closing
    return closing


def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _viewer(request: Request) -> UserView:
    """The user who asks. The guard lets nobody else in where a route asks for one; this says so once more."""
    user = _caller(request).user
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
