"""Finding out who knocks, by the credential of a request. Room: api. Reads the store through operations.

Basic, Bearer and ``X-Auth-Token`` are taken everywhere; WMLA 2.3 also sends a bare token as ``Authorization``.
``Guard`` stands before all routes: what it does not let in, no route ever sees.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edt_api.access import NOBODY, Caller, Door, door, refusal, sent_by_a_page
from edt_api.answers import refuse
from edt_api.passwords import Passwords
from edt_scheduler import operations
from edt_scheduler.errors import NoSuchUser
from edt_scheduler.house import House
from edt_scheduler.views import UserView


@dataclass(frozen=True)
class Credential:
    """What a request shows: a name with a password, or a token."""

    secret: str
    name: str | None = None
    """None: ``secret`` is a token."""


def shown(headers: Mapping[str, str]) -> Credential | None:
    """The credential in these headers; None where there is none that can be read."""
    scheme, _, rest = headers.get("authorization", "").strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        return _basic(rest)
    if scheme.lower() == "bearer":
        return Credential(rest) if rest else None
    if scheme and rest:
        return None
    token = scheme or headers.get("x-auth-token", "").strip()
    return Credential(token) if token else None


def _basic(text: str) -> Credential | None:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        name, colon, password = decoded.decode().partition(":")
    except UnicodeDecodeError:
        name, colon, password = decoded.decode("latin-1").partition(":")
    return Credential(password, name) if colon and name else None


@dataclass(frozen=True)
class Keeper:
    """Knows who a credential belongs to."""

    house: House
    passwords: Passwords
    join_token: str

    async def caller(self, credential: Credential | None) -> Caller:
        """Whose credential this is; NOBODY for one that is not valid."""
        if credential is None:
            return NOBODY
        if credential.name is not None:
            return await self._by_password(credential.name, credential.secret)
        return await to_thread.run_sync(self._by_token, credential.secret)

    async def _by_password(self, name: str, password: str) -> Caller:
        user = await to_thread.run_sync(self._user, name)
        if not await self.passwords.verify(name, password, user.password_hash if user else None):
            return NOBODY
        return Caller(user=user, by_password=True)

    def _user(self, name: str) -> UserView | None:
        try:
            return operations.user(self.house, name)
        except NoSuchUser:
            return None

    def _by_token(self, token: str) -> Caller:
        if hmac.compare_digest(token.encode(errors="replace"), self.join_token.encode()):
            return Caller(joins=True)
        user = operations.verify_token(self.house, token)
        if user is not None:
            return Caller(user=user)
        node = operations.verify_node_token(self.house, token)
        return Caller(node=node) if node is not None else NOBODY


class Guard:
    """Middleware: asks who knocks, and answers itself where that one may not come in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = Headers(scope=scope)
        whose, node = door(scope["method"], scope["path"])
        caller = NOBODY
        if whose is not Door.ANYONE:
            keeper: Keeper = scope["app"].state.keeper
            caller = await keeper.caller(shown(headers))
        refused = refusal(caller, whose, node) or sent_by_a_page(scope["method"], headers.get("sec-fetch-site"))
        if refused is not None:
            return await refuse(scope["path"], refused)(scope, receive, _guarded(send))
        scope.setdefault("state", {})["caller"] = caller
        return await self._app(scope, receive, _guarded(send))


def _guarded(send: Send) -> Send:
    """Answers hold tokens, and text that users wrote: no cache keeps them, no browser takes a log for a page."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded
