"""Finds the caller of each request by the request's credential, and limits the request's body.

Reads the store through operations. All paths take Basic, Bearer and ``X-Auth-Token``. WMLA 2.3 also sends a bare token
as ``Authorization``. If a request has none of these, the guard reads the session cookie. ``Guard`` runs before all
routes, so no route sees a request that the guard has refused.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edt_api import concurrency
from edt_api.access import tokens
from edt_api.access.passwords import Passwords
from edt_api.access.rules import (
    NOBODY,
    Audience,
    Caller,
    Credential,
    audience_of,
    changes,
    claims_to_join,
    refusal,
    sent_by_a_page,
    wrong_origin,
)
from edt_api.access.token_uses import ApiTokenUses
from edt_api.errors import ApiError, RequestInvalid, TooLarge, TooManyLogons
from edt_api.http import address, by_browser, refuse
from edt_api.submissions.uploads import read_whole
from edt_scheduler.errors import NoSuchUser, Unavailable
from edt_scheduler.operations import accounts, api_tokens, fleet
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

_LOOKED_UP_TOGETHER = 64
"""The most tokens for which one thread asks the database in a row."""
MOST_BYTES = 1 << 20
MOST_BYTES_OF_ANYONE = 16 << 10
"""The most bytes in the body of a caller who is not signed in yet: a name and a password."""
MOST_BYTES_OF_A_NODE = 256 << 10
"""The most bytes in the body of a node whose own token is not checked yet: a thousand slots."""
_READ_BY_THEIR_ROUTES = re.compile(r"/platform/rest/deeplearning/v1/execs/?|/api/v1/nodes/[^/]+/reports")


def shown(headers: Mapping[str, str]) -> Credential | None:
    """Return the credential in these headers; None if there is none, or none that can be read."""
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


class Authenticator:
    """Finds the caller to whom a credential belongs. Belongs to the event loop that uses it."""

    def __init__(self, platform: Platform, passwords: Passwords, join_token: str) -> None:
        self.platform, self.passwords, self.join_token = platform, passwords, join_token
        self.uses = ApiTokenUses()
        self._tokens = concurrency.Gathered(
            concurrency.each_once(self._by_token), concurrency.lookups, _LOOKED_UP_TOGETHER
        )

    async def caller(self, credential: Credential | None, address: str) -> Caller:
        """Return the caller to whom this credential belongs; NOBODY if there is none or it is not valid.

        Args:
            credential: the credential of the request.
            address: address from which the request comes.

        Raises:
            TooManyLogons: the API does not check passwords of that name or address now.
            Unavailable: the database does not answer.
        """
        if credential is None:
            return NOBODY
        if credential.name is not None:
            self.passwords.failed_logons.admit(credential.name, address)  # checked first, to spare the database
            user = await concurrency.lookups.run(self._user, credential.name)
            right = await self.passwords.verify(credential.name, credential.secret, user, address)
            return Caller(user=user, credential=credential) if right else NOBODY
        return await self._tokens.run(credential)

    async def still(self, caller: Caller) -> bool:
        """Whether a credential is still valid, for the same user with the same role, password and scope.

        An unchanged password is not hashed again. A credential that is not a user's gives False.
        """
        before, credential = caller.user, caller.credential
        if before is None or credential is None:
            return False
        if credential.name is None:
            now = (await self._tokens.run(credential)).user
        else:
            now = await concurrency.lookups.run(self._user, credential.name)
        return now == before  # compares id, role, password hash and scope among others

    def _user(self, name: str) -> UserView | None:
        if "\0" in name:  # PostgreSQL refuses a query with it
            return None
        try:
            return accounts.user(self.platform, name)
        except NoSuchUser:
            return None

    def _by_token(self, credential: Credential) -> Caller:
        token = credential.secret
        if hmac.compare_digest(token.encode(errors="replace"), self.join_token.encode()):
            return Caller(joins=True, credential=credential)
        if token.startswith(tokens.API_TOKEN):
            found = api_tokens.verify(self.platform, token)
            if found is None:
                return NOBODY
            self.uses.note(found.token, self.platform.clock())
            return Caller(user=found.user, credential=credential, api_token=found.token)
        user = tokens.user_of(self.platform, token)
        if user is not None:
            return Caller(user=user, credential=credential)
        node = fleet.verify_node_token(self.platform, token)
        return Caller(node=node, credential=credential) if node is not None else NOBODY


class Guard:
    """Middleware that finds the caller of each request. It answers the request itself if it refuses the caller."""

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
            credential = shown(request.headers)
            try:
                caller = await authenticator.caller(credential or _session(request), address(scope))
            except (Unavailable, TooManyLogons) as error:
                return await refuse(request, error)(scope, receive, _guarded(send))
            if caller == NOBODY and claims_to_join(audience, credential):
                caller = Caller(credential=credential)
        refused = refusal(caller, audience, node, scope["method"]) or _not_by_a_page_of_ours(request, caller)
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
    """Return the session cookie of a request without another credential; None if it has no cookie."""
    if "authorization" in request.headers or "x-auth-token" in request.headers:
        return None
    token = session_cookie(request)
    return Credential(token) if token is not None else None


def session_cookie(request: Request) -> str | None:
    """Return the token in the request's cookie; None if there is none.

    No page gets the token: the browser hides it from scripts and sends it to this site only.
    """
    return request.cookies.get(_cookie(request)["key"]) or None


def give_cookie(response: Response, request: Request, token: str, seconds: float) -> None:
    """Make the browser keep ``token`` for ``seconds``, the time for which the token is valid."""
    response.set_cookie(value=token, max_age=int(seconds), **_cookie(request))


def take_cookie_back(response: Response, request: Request) -> None:
    """Make the browser delete the session cookie."""
    response.delete_cookie(**_cookie(request))


def _cookie(request: Request) -> dict[str, Any]:
    """Return the cookie's name and properties.

    Under https the name begins with ``__Host-``: browsers then guarantee that no other host and no plain connection has
    set the cookie. Under https the API does not read the other name.
    """
    secure = request.scope.get("scheme") == "https"
    name = "__Host-edt_session" if secure else "edt_session"
    return {"key": name, "path": "/", "secure": secure, "httponly": True, "samesite": "strict"}


def _holds_nul(request: Request) -> bool:
    """Whether the address holds a NUL. PostgreSQL takes no NUL in text, so no stored name holds one."""
    return "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]


def _not_by_a_page_of_ours(request: Request, caller: Caller) -> ApiError | None:
    """Return the refusal of a change that the browser sent with its own cookie or password; None if there is none.

    A token in a header is different: a page must set that header itself, and browsers do not let pages of other sites
    do so.
    """
    refused = sent_by_a_page(request.method, request.headers.get("sec-fetch-site"))
    if refused is not None or not changes(request.method) or caller.credential is None:
        return refused
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    by_cookie = _session(request) is not None
    by_password = caller.credential.name is not None and (origin is not None or by_browser(request.headers))
    return wrong_origin(origin, request.url.scheme, host) if by_cookie or by_password else None


def _guarded(send: Send) -> Send:
    """Add headers to each answer: caches must not keep it, and browsers must not treat a log as a page.

    Answers hold tokens and text that users wrote.
    """

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded


class BodyLimit:
    """Middleware behind the guard: reads a request's whole body, or refuses it. Requests without a body pass at once.

    FastAPI reads and parses a whole body in the event loop, so a long body would take memory and delay all other
    requests. The routes for submissions and for a node's reports read their bodies piece by piece and have limits of
    their own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _comes_with_one(scope) or _READ_BY_THEIR_ROUTES.fullmatch(scope["path"]):
            return await self._app(scope, receive, send)
        audience, _ = audience_of(scope["method"], scope["path"])
        most = MOST_BYTES_OF_ANYONE if audience is Audience.ANYONE else MOST_BYTES
        if audience is Audience.NODE_JOIN and not scope["state"]["caller"].joins:
            most = MOST_BYTES_OF_A_NODE
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
