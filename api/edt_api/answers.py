"""How a refusal is written: WMLA's plain text on its surface, RFC 9457 everywhere else. Room: api.

``Error <code>: <message>\\n`` is what WMLA's own server sends, and what its CLI, SDK and notebooks can show.
"""

from __future__ import annotations

import http
import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match

from edt_api.access import by_browser
from edt_api.errors import STATUS, WMLA, ApiError, NoRoom, RequestInvalid, TooManyLogons, TooManyUploads
from edt_api.schemas import Problem
from edt_runner.storage import NO_ROOM
from edt_scheduler.errors import SchedulerError, Unavailable

log = logging.getLogger("edt.api")

_WMLA_SURFACE = ("/platform/", "/auth/")
_NEVER_WMLA = frozenset({"idempotency-key-reused", "idempotency-key-invalid"})
"""Who sends that header is no client of WMLA's, and is answered as everywhere else."""
_OURS_ALONE = "something went wrong on the server's side; its log says what"
_CHALLENGE = 'Basic realm="OpenEDT", charset="UTF-8"'
_CHALLENGE_TO_A_PAGE = 'Bearer realm="OpenEDT"'
"""For this one a browser opens no window of its own: the page asks for the password."""


def is_wmla(path: str) -> bool:
    """Whether this is answered as WMLA's own server would."""
    return path.startswith(_WMLA_SURFACE)


def refuse(request: Request, error: ApiError | SchedulerError) -> Response:
    """The response to a request that is refused by ``error``."""
    status, message = STATUS.get(error.code, 500), str(error)
    if is_wmla(request.url.path):
        status, message = WMLA.get(error.code, (status, message))
    response = _response(request, status, message, error.code)
    if isinstance(error, Unavailable | TooManyLogons | TooManyUploads):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def install(app: FastAPI) -> None:
    """Have every refusal of ``app`` written here."""
    app.add_exception_handler(ApiError, _domain)
    app.add_exception_handler(SchedulerError, _domain)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(OSError, _disk)
    app.add_exception_handler(Exception, _unforeseen)


def _response(request: Request, status: int, message: str, code: str) -> Response:
    path = request.url.path
    headers = {"WWW-Authenticate": _challenge(request)} if status == 401 else None
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


def _challenge(request: Request) -> str:
    return _CHALLENGE_TO_A_PAGE if by_browser(request.headers) else _CHALLENGE


async def _domain(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError | SchedulerError)
    if STATUS.get(error.code, 500) == 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    return refuse(request, error)


async def _validation(request: Request, error: Exception) -> Response:
    """Names the fields and what is wrong with them, never what they held: that may be a password."""
    assert isinstance(error, RequestValidationError)
    wrongs = (f"{'.'.join(map(str, each['loc'][1:])) or each['loc'][0]}: {each['msg']}" for each in error.errors())
    return refuse(request, RequestInvalid("; ".join(list(wrongs)[:10])))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no-such-page", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    message = {404: "there is nothing at this path", 405: f"{request.method} is not taken here"}
    said = message.get(error.status_code, error.detail)
    response = _response(request, error.status_code, said, code)
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["Allow"] = _allowed(request)
    return response


def _allowed(request: Request) -> str:
    """Every method that some route takes at this path; the framework tells those of the first one."""
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _disk(request: Request, error: Exception) -> Response:
    """A full disk is the server's matter and passes; every other error of the system is a defect."""
    assert isinstance(error, OSError)
    if error.errno not in NO_ROOM:
        raise error
    log.error("%s %s: %s", request.method, request.url.path, error)
    return refuse(request, NoRoom())


async def _unforeseen(request: Request, _error: Exception) -> Response:
    """The server logs the exception itself; the client learns nothing of our insides."""
    return _response(request, 500, _OURS_ALONE, "internal")
