"""What all requests have in common: the sender's address, the form of refusals, and the pages of lists.

The API believes the headers of a proxy only if EDT_FORWARDED_ALLOW_IPS names that proxy, because anybody can send such
headers. The host is among these headers because the API compares a page's ``Origin`` with it.

On WMLA's paths a refusal is WMLA's plain text, ``Error <code>: <message>\\n``. WMLA's own server sends this text, and
WMLA's CLI, SDK and notebooks can show it. Everywhere else a refusal is a problem document (RFC 9457).

Each page of a list has a limit and a cursor for the next page. Clients treat the cursor as opaque. It holds the name of
the list and the number of the last item of the page.
"""

from __future__ import annotations

import base64
import http
import ipaddress
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from edt_api.errors import WMLA, DiskFull, NoSuchPage, RequestInvalid, TooManyLogons, TooManyUploads
from edt_api.schemas.cluster import Problem
from edt_api.schemas.jobs import Page
from edt_contract.durable import NO_ROOM
from edt_scheduler.errors import PublicError, Unavailable


class Forwarded:
    """The outermost middleware: makes requests of believed proxies look as they did before the proxy."""

    def __init__(self, app: ASGIApp, believed: str) -> None:
        """``believed`` holds addresses and networks, separated by commas; ``*`` means everybody, empty means nobody."""
        self._forwarded = ProxyHeadersMiddleware(app, believed)  # type: ignore[arg-type]  # uvicorn's own types

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if scope["type"] == "http" and peer and peer[0] in self._forwarded.trusted_hosts:
            # The host for which the nearest proxy was asked; each proxy appends its own after a comma.
            host = Headers(scope=scope).get("x-forwarded-host", "").rpartition(",")[2].strip()
            if host:
                others = [(key, value) for key, value in scope["headers"] if key != b"host"]
                scope = {**scope, "headers": [(b"host", host.encode("latin-1")), *others]}
        await self._forwarded(scope, receive, send)  # type: ignore[arg-type]


def address(scope: Scope) -> str:
    """Return the address from which a request comes, as believed proxies report it; empty if unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


def on_this_machine(scope: Scope) -> bool:
    """Whether the request comes from this machine. A request that a proxy passed on never does, believed or not."""
    try:
        here = ipaddress.ip_address(address(scope)).is_loopback
    except ValueError:
        return False
    return here and not any(name in _FORWARDED for name, _ in scope["headers"])


def by_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser sent the request.

    A browser sends no ``Sec-Fetch-…`` header to a plain HTTP address, but every browser calls itself Mozilla.
    PowerShell does so, too, but it adds its own name.
    """
    agent = headers.get("user-agent", "")
    return "sec-fetch-mode" in headers or (agent.startswith("Mozilla/") and "PowerShell/" not in agent)


log = logging.getLogger("edt.api")

_WMLA_SURFACE = ("/platform/", "/auth/", "/dlim/")
_NEVER_WMLA = frozenset({"idempotency-key-reused", "idempotency-key-invalid"})
"""A client that sends an Idempotency-Key is not WMLA's, and gets the same answers as on other paths."""
_OURS_ALONE = "something went wrong on the server's side; its log says what"
_CHALLENGE = 'Basic realm="OpenEDT", charset="UTF-8"'
_CHALLENGE_TO_A_PAGE = 'Bearer realm="OpenEDT"'
"""A browser opens no password window for this challenge, so the page itself asks for the password."""


def is_wmla(path: str) -> bool:
    """Whether the API answers this path as WMLA's own server would."""
    return path.startswith(_WMLA_SURFACE)


def refuse(request: Request, error: PublicError) -> Response:
    """Return the response to a request that ``error`` refuses."""
    status, message = error.status, str(error)
    if is_wmla(request.url.path):
        status, message = WMLA.get(error.code, (status, message))
    response = _response(request, status, message, error.code)
    if isinstance(error, Unavailable | TooManyLogons | TooManyUploads):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def _response(request: Request, status: int, message: str, code: str) -> Response:
    path = request.url.path
    challenge = _CHALLENGE_TO_A_PAGE if by_browser(request.headers) else _CHALLENGE
    headers = {"WWW-Authenticate": challenge} if status == 401 else None
    if is_wmla(path) and code not in _NEVER_WMLA:
        return PlainTextResponse(f"Error {status}: {message}\n", status, headers)
    problem = Problem(
        type=f"urn:openedt:error:{code}",
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=message,
        instance=path,
        code=code,
    )
    return JSONResponse(problem.model_dump(), status, headers, media_type="application/problem+json")


async def _domain(request: Request, error: PublicError) -> Response:
    if error.status == 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    return refuse(request, error)


async def _validation(request: Request, error: RequestValidationError) -> Response:
    """Name the fields and what is wrong with each, but never their values, because a value may be a password."""
    wrongs = (f"{'.'.join(map(str, each['loc'][1:])) or each['loc'][0]}: {each['msg']}" for each in error.errors())
    return refuse(request, RequestInvalid("; ".join(list(wrongs)[:10])))


async def _http(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return refuse(request, NoSuchPage())
    if error.status_code != 405:
        return _response(request, error.status_code, error.detail, "http-error")
    response = _response(request, 405, f"{request.method} is not taken here", "method-not-allowed")
    # All methods of all routes at this path; the framework lists only those of the first route.
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    response.headers["Allow"] = ", ".join(sorted({method for route in matching for method in route.methods or ()}))
    return response


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # the client is gone, so nobody reads this response


async def _disk(request: Request, error: OSError) -> Response:
    """Answer a full disk with DiskFull, because that condition passes. Every other system error is a defect."""
    if error.errno not in NO_ROOM:
        raise error
    log.error("%s %s: %s", request.method, request.url.path, error)
    return refuse(request, DiskFull())


async def _unforeseen(request: Request, _error: Exception) -> Response:
    """Answer 500 without details, so that the client learns nothing about the code. The server logs the exception."""
    return _response(request, 500, _OURS_ALONE, "internal")


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    PublicError: _domain,
    RequestValidationError: _validation,
    HTTPException: _http,
    ClientDisconnect: _gone,
    OSError: _disk,
    Exception: _unforeseen,
}
"""Exception handlers of the application. They write every refusal."""


MOST = 500
_LARGEST = 2**63 - 1
_Item = TypeVar("_Item")
_Page = TypeVar("_Page", bound=Page[Any])

Limit = Annotated[int, Query(ge=1, le=MOST, description="The most items of this page.")]
Cursor = Annotated[str | None, Query(max_length=128, description="`next` of the page before this one.")]


def cursor_of(listed: str, number: int | None) -> str | None:
    """Return the cursor that stands after item ``number`` of a list; None for None: the list has ended."""
    if number is None:
        return None
    return base64.urlsafe_b64encode(f"{listed}:{number}".encode()).decode().rstrip("=")


def number_of(listed: str, cursor: str | None) -> int | None:
    """Return the number in a cursor of this list; None if there is no cursor.

    Raises:
        RequestInvalid: the text is not a cursor of this list.
    """
    if cursor is None:
        return None
    try:
        name, _, digits = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii").partition(":")
        if name == listed and digits.isdigit() and int(digits) <= _LARGEST:
            return int(digits)
    except ValueError:
        pass
    raise RequestInvalid(f"cursor: {cursor!r} is none of this list's; take the `next` of a page, or leave it out")


def paged(
    shape: type[_Page],
    listed: str,
    find: Callable[..., Sequence[_Item]],
    number: Callable[[_Item], int],
    limit: int,
    cursor: str | None,
    show: Callable[[_Item], Any] = lambda item: item,
    **more: Any,
) -> _Page:
    """Return one page of at most ``limit`` items.

    Args:
        shape: class of the page.
        listed: name of the list, kept in its cursors.
        find: returns items after a number. It is asked for one item more than ``limit``, to see whether a next page
            exists.
        number: returns the number of an item.
        limit: the most items of the page.
        cursor: cursor of the request; None for the first page.
        show: turns an item into the shape that the page holds.
        more: further fields of the page.

    Raises:
        RequestInvalid: the text is not a cursor of this list.
    """
    found = find(limit=limit + 1, after=number_of(listed, cursor) or 0)
    page = found[:limit]
    last = number(page[-1]) if len(found) > limit else None
    return shape(items=[show(item) for item in page], next=cursor_of(listed, last), **more)
