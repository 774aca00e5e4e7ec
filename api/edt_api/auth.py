"""Finding out who knocks, by the credential of a request. Room: api. Reads the store through operations.

Basic, Bearer and ``X-Auth-Token`` are taken everywhere; WMLA 2.3 also sends a bare token as ``Authorization``.
Where a request shows none of these, a page's cookie is looked at.
``Guard`` stands before all routes: what it does not let in, no route ever sees.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edt_api import cookies, threads
from edt_api.access import (
    NOBODY,
    Caller,
    Credential,
    Door,
    by_browser,
    changes,
    door,
    refusal,
    sent_by_a_page,
    wrong_origin,
)
from edt_api.answers import refuse
from edt_api.errors import ApiError, RequestInvalid, TooManyLogons
from edt_api.passwords import Passwords
from edt_api.proxies import address
from edt_scheduler import operations
from edt_scheduler.errors import NoSuchUser, Unavailable
from edt_scheduler.house import House
from edt_scheduler.views import UserView


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

    async def caller(self, credential: Credential | None, address: str) -> Caller:
        """Whose credential this is, sent from ``address``; NOBODY for one that is not valid.

        Raises TooManyLogons where passwords from there are not looked at now, and Unavailable.
        """
        if credential is None:
            return NOBODY
        if credential.name is not None:
            self.passwords.guesses.admit(credential.name, address)  # before the database, which nodes need too
            user = await threads.lookups.run(self._user, credential.name)
            right = await self.passwords.verify(credential.name, credential.secret, user, address)
            return Caller(user=user, credential=credential) if right else NOBODY
        return await threads.lookups.run(self._by_token, credential)

    async def still(self, caller: Caller) -> bool:
        """Whether a user's credential still opens what it did. A password that has not changed is not hashed again."""
        before, credential = caller.user, caller.credential
        if before is None or credential is None:
            return False
        if credential.name is None:
            now = (await threads.lookups.run(self._by_token, credential)).user
        else:
            now = await threads.lookups.run(self._user, credential.name)
        return now == before  # id, role and password among it

    def _user(self, name: str) -> UserView | None:
        if "\0" in name:  # no database could even be asked for it
            return None
        try:
            return operations.user(self.house, name)
        except NoSuchUser:
            return None

    def _by_token(self, credential: Credential) -> Caller:
        token = credential.secret
        if hmac.compare_digest(token.encode(errors="replace"), self.join_token.encode()):
            return Caller(joins=True, credential=credential)
        user = operations.verify_token(self.house, token)
        if user is not None:
            return Caller(user=user, credential=credential)
        node = operations.verify_node_token(self.house, token)
        return Caller(node=node, credential=credential) if node is not None else NOBODY


class Guard:
    """Middleware: asks who knocks, and answers itself where that one may not come in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        request = Request(scope)
        whose, node = door(scope["method"], scope["path"])
        caller = NOBODY
        if whose is not Door.ANYONE:
            keeper: Keeper = scope["app"].state.keeper
            try:
                caller = await keeper.caller(shown(request.headers) or _session(request), address(scope))
            except (Unavailable, TooManyLogons) as error:
                return await refuse(request, error)(scope, receive, _guarded(send))
        refused = refusal(caller, whose, node) or _not_by_a_page_of_ours(request, caller)
        if refused is None and whose is not Door.ANYONE and _holds_nul(request):
            refused = RequestInvalid("the address holds a NUL character, which no name here does")
        if refused is not None:
            response = refuse(request, refused)
            if caller == NOBODY and _session(request):
                cookies.take_back(response, request)
            return await response(scope, receive, _guarded(send))
        scope.setdefault("state", {})["caller"] = caller
        return await self._app(scope, receive, _guarded(send))


def _session(request: Request) -> Credential | None:
    """The session of a request that shows no credential of its own."""
    if "authorization" in request.headers or "x-auth-token" in request.headers:
        return None
    token = cookies.read(request)
    return Credential(token) if token is not None else None


def _holds_nul(request: Request) -> bool:
    """PostgreSQL takes none in text, so nothing that is stored holds one, and nothing may be asked with one."""
    return "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]


def _not_by_a_page_of_ours(request: Request, caller: Caller) -> ApiError | None:
    """Why a change is refused that a browser sent on its own account, with what it keeps: a cookie or a password.

    A token that is shown is none of that: a page has to put it into a header by itself, and browsers let no page of
    another site do so.
    """
    refused = sent_by_a_page(request.method, request.headers.get("sec-fetch-site"))
    if refused is not None or not changes(request.method) or caller.credential is None:
        return refused
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    by_cookie = _session(request) is not None
    by_password = caller.credential.name is not None and (origin is not None or by_browser(request.headers))
    return wrong_origin(origin, request.url.scheme, host) if by_cookie or by_password else None


def _guarded(send: Send) -> Send:
    """Answers hold tokens, and text that users wrote: no cache keeps them, no browser takes a log for a page."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded
