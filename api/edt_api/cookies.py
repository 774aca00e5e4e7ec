"""The session's cookie: its name, how it is set, read and taken back. Room: api. Pure.

A page gets no token in its hands: the browser keeps it where no script reads it and sends it to this site alone.
Under https the name begins with ``__Host-``, by which browsers promise that no other host and no plain connection
has set it; there the other name is not read.
"""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.responses import Response


def name(request: HTTPConnection) -> str:
    return "__Host-edt_session" if _is_secure(request) else "edt_session"


def read(request: HTTPConnection) -> str | None:
    """The token in the request's cookie."""
    return request.cookies.get(name(request)) or None


def give(response: Response, request: HTTPConnection, token: str, seconds: float) -> None:
    """Have the browser keep ``token`` for as long as it holds."""
    response.set_cookie(
        name(request),
        token,
        max_age=int(seconds),
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def take_back(response: Response, request: HTTPConnection) -> None:
    response.delete_cookie(name(request), path="/", secure=_is_secure(request), httponly=True, samesite="strict")


def _is_secure(request: HTTPConnection) -> bool:
    return request.scope.get("scheme") == "https"
