"""Who sends a request, by its credential, and how much of its body is taken. Reads the store through operations.

Basic, Bearer and ``X-Auth-Token`` are taken everywhere; WMLA 2.3 also sends a bare token as ``Authorization``.
Where a request shows none of these, a page's cookie is looked at.
``Guard`` comes before all routes: no route sees a request that it has refused.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edt_api import concurrency
from edt_api.access.passwords import Passwords
from edt_api.access.rules import (
    NOBODY,
    Audience,
    Caller,
    Credential,
    audience_of,
    changes,
    refusal,
    sent_by_a_page,
    wrong_origin,
)
from edt_api.errors import ApiError, RequestInvalid, TooLarge, TooManyLogons
from edt_api.http import address, by_browser, refuse
from edt_api.submissions.uploads import read_whole
from edt_scheduler.errors import NoSuchUser, Unavailable
from edt_scheduler.operations import accounts, fleet
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

MOST_BYTES = 1 << 20
MOST_BYTES_OF_ANYONE = 16 << 10
"""Of who is not signed in yet: a name and a password."""
_READ_BY_THEIR_ROUTES = re.compile(r"/platform/rest/deeplearning/v1/execs/?|/api/v1/nodes/[^/]+/reports")


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
    except ValueError:
        return None
    try:
        name, colon, password = decoded.decode().partition(":")
    except UnicodeDecodeError:
        name, colon, password = decoded.decode("latin-1").partition(":")
    return Credential(password, name) if colon and name else None


@dataclass(frozen=True)
class Authenticator:
    """Knows who a credential belongs to."""

    platform: Platform
    passwords: Passwords
    join_token: str

    async def caller(self, credential: Credential | None, address: str) -> Caller:
        """Whose credential this is, sent from ``address``; NOBODY for one that is not valid.

        Raises TooManyLogons where passwords from there are not looked at now, and Unavailable.
        """
        if credential is None:
            return NOBODY
        if credential.name is not None:
            self.passwords.failed_logons.admit(credential.name, address)  # before the database, which nodes need too
            user = await concurrency.lookups.run(self._user, credential.name)
            right = await self.passwords.verify(credential.name, credential.secret, user, address)
            return Caller(user=user, credential=credential) if right else NOBODY
        return await concurrency.lookups.run(self._by_token, credential)

    async def still(self, caller: Caller) -> bool:
        """Whether a user's credential still opens what it did. A password that has not changed is not hashed again."""
        before, credential = caller.user, caller.credential
        if before is None or credential is None:
            return False
        if credential.name is None:
            now = (await concurrency.lookups.run(self._by_token, credential)).user
        else:
            now = await concurrency.lookups.run(self._user, credential.name)
        return now == before  # id, role and password among it

    def _user(self, name: str) -> UserView | None:
        if "\0" in name:  # no database could even be asked for it
            return None
        try:
            return accounts.user(self.platform, name)
        except NoSuchUser:
            return None

    def _by_token(self, credential: Credential) -> Caller:
        token = credential.secret
        if hmac.compare_digest(token.encode(errors="replace"), self.join_token.encode()):
            return Caller(joins=True, credential=credential)
        user = accounts.verify_token(self.platform, token)
        if user is not None:
            return Caller(user=user, credential=credential)
        node = fleet.verify_node_token(self.platform, token)
        return Caller(node=node, credential=credential) if node is not None else NOBODY


class Guard:
    """Middleware: finds the caller of each request, and answers itself where the caller is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        request = Request(scope)
        audience, node = audience_of(scope["method"], scope["path"])
        caller = NOBODY
        if audience is not Audience.ANYONE:
            authenticator: Authenticator = scope["app"].state.authenticator
            try:
                caller = await authenticator.caller(shown(request.headers) or _session(request), address(scope))
            except (Unavailable, TooManyLogons) as error:
                return await refuse(request, error)(scope, receive, _guarded(send))
        refused = refusal(caller, audience, node) or _not_by_a_page_of_ours(request, caller)
        if refused is None and audience is not Audience.ANYONE and _holds_nul(request):
            refused = RequestInvalid("the address holds a NUL character, which no name here does")
        if refused is not None:
            response = refuse(request, refused)
            if caller == NOBODY and _session(request):
                take_cookie_back(response, request)
            return await response(scope, receive, _guarded(send))
        scope.setdefault("state", {})["caller"] = caller
        return await self._app(scope, receive, _guarded(send))


def _session(request: Request) -> Credential | None:
    """The session of a request that shows no credential of its own."""
    if "authorization" in request.headers or "x-auth-token" in request.headers:
        return None
    token = session_cookie(request)
    return Credential(token) if token is not None else None


def session_cookie(request: Request) -> str | None:
    """The token in the request's cookie.

    A page never gets the token: the browser keeps it where no script reads it and sends it to this site alone.
    """
    return request.cookies.get(_cookie(request)["key"]) or None


def give_cookie(response: Response, request: Request, token: str, seconds: float) -> None:
    """Have the browser keep ``token`` for as long as it holds."""
    response.set_cookie(value=token, max_age=int(seconds), **_cookie(request))


def take_cookie_back(response: Response, request: Request) -> None:
    response.delete_cookie(**_cookie(request))


def _cookie(request: Request) -> dict[str, Any]:
    """Its name and properties. Under https the name begins with ``__Host-``, by which browsers promise that no other
    host and no plain connection has set it; there the other name is not read."""
    secure = request.scope.get("scheme") == "https"
    name = "__Host-edt_session" if secure else "edt_session"
    return {"key": name, "path": "/", "secure": secure, "httponly": True, "samesite": "strict"}


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


class BodyLimit:
    """Middleware behind the guard: reads a request's body whole, or refuses it. One without a body passes at once.

    FastAPI reads a body whole and parses it in the event loop, so a long one would take memory and keep everybody
    waiting. A submission and a node's reports are read piece by piece by their routes, which have caps of their own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _comes_with_one(scope) or _READ_BY_THEIR_ROUTES.fullmatch(scope["path"]):
            return await self._app(scope, receive, send)
        audience, _ = audience_of(scope["method"], scope["path"])
        most = MOST_BYTES_OF_ANYONE if audience is Audience.ANYONE else MOST_BYTES
        request = Request(scope, receive)
        try:
            body = await read_whole(request.stream(), most, f"the body is larger than {most} bytes")
        except TooLarge as error:
            return await refuse(request, error)(scope, receive, send)
        except ClientDisconnect:
            return None
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        return await self._app(scope, again, send)


def _comes_with_one(scope: Scope) -> bool:
    return any(name in {b"content-length", b"transfer-encoding"} and value != b"0" for name, value in scope["headers"])
