"""What a route is given besides its own parameters: the open house, its settings, and who asks. Room: api."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from edt_api.access import Caller
from edt_api.errors import Forbidden
from edt_api.passwords import Passwords
from edt_api.settings import Settings
from edt_scheduler.house import House
from edt_scheduler.views import UserView


@dataclass
class Closing:
    """Set once the server has been asked to go: whoever holds a request open lets go of it."""

    asked: bool = False


def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _passwords(request: Request) -> Passwords:
    passwords: Passwords = request.app.state.passwords
    return passwords


def _closing(request: Request) -> Closing:
    closing: Closing = request.app.state.closing
    return closing


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
TheClosing = Annotated[Closing, Depends(_closing)]
TheCaller = Annotated[Caller, Depends(_caller)]
Viewer = Annotated[UserView, Depends(_viewer)]
