"""A page's session: ``/api/v1/session`` and who one is, ``/api/v1/me``. Room: api.

A session is a token like ``/auth/v1``'s, only that the browser keeps it. Next: cookies.py for how, auth.py for
the guard that takes it, access.py for what a request with it must show besides.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from edt_api import cookies, schemas
from edt_api.access import Credential, wrong_origin
from edt_api.context import TheAddress, TheCaller, TheHouse, TheKeeper, TheSettings, Viewer, for_anyone, for_users
from edt_api.errors import NotAuthenticated
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1")


@router.post("/session", status_code=204, dependencies=[for_anyone])
async def begin(
    request: Request,
    house: TheHouse,
    settings: TheSettings,
    keeper: TheKeeper,
    address: TheAddress,
    who: schemas.NewSession,
) -> Response:
    """Sign in with a name and a password; the answer's cookie is the session. An older one of this browser ends."""
    origin = request.headers.get("origin")
    refused = wrong_origin(origin, request.url.scheme, request.headers.get("host", "")) if origin else None
    if refused is not None:  # or another site could sign its visitors in under its own name
        raise refused
    caller = await keeper.caller(Credential(who.password, who.name), address)
    if caller.user is None:
        raise NotAuthenticated("the name or the password is wrong")
    seconds = settings.token_hours * 3600
    token = await to_thread.run_sync(operations.issue_token, house, caller.user, seconds)
    older = cookies.read(request)
    if older is not None:
        await to_thread.run_sync(operations.revoke_token, house, older)
    response = Response(status_code=204)
    cookies.give(response, request, token, seconds)
    return response


@router.delete("/session", status_code=204, dependencies=[for_users])
def end(request: Request, house: TheHouse, caller: TheCaller) -> Response:
    """Sign out. The token ends on the server, not only in the browser."""
    if caller.token is not None:
        operations.revoke_token(house, caller.token)
    response = Response(status_code=204)
    cookies.take_back(response, request)
    return response


@router.get("/me")
def me(viewer: Viewer) -> schemas.Me:
    """Who the credential belongs to."""
    return schemas.Me(name=viewer.name, role=schemas.RoleName(viewer.role.value), version=_version())


@cache
def _version() -> str:
    try:
        return metadata.version("openedt")
    except metadata.PackageNotFoundError:  # run from the sources
        return "unknown"
