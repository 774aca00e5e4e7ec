"""A page's session: ``/api/v1/session``; and the signed-in user: ``/api/v1/me``.

A session is a token like that of ``/auth/v1``. The browser keeps it in a cookie. access/guard.py sets, reads and checks
the cookie. access/rules.py defines what else a request with the cookie must show.
"""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from edt_api.access import tokens
from edt_api.access.guard import give_cookie, session_cookie, take_cookie_back
from edt_api.access.rules import Credential, wrong_origin
from edt_api.dependencies import (
    TheAddress,
    TheAuthenticator,
    TheCaller,
    ThePlatform,
    TheSettings,
    Viewer,
    for_accounts,
    for_anyone,
)
from edt_api.errors import NotAuthenticated
from edt_api.schemas import cluster
from edt_api.version import version
from edt_scheduler.operations import accounts

router = APIRouter(prefix="/api/v1")


@router.post("/session", status_code=204, response_class=Response, dependencies=[for_anyone])
async def begin(
    request: Request,
    response: Response,
    platform: ThePlatform,
    settings: TheSettings,
    authenticator: TheAuthenticator,
    address: TheAddress,
    who: cluster.NewSession,
) -> None:
    """Sign in with a name and a password. The answer sets a cookie, which is the session.

    An older session of this browser ends.
    """
    origin = request.headers.get("origin")
    refused = wrong_origin(origin, request.url.scheme, request.headers.get("host", "")) if origin else None
    if refused is not None:  # without this check a page of another site could sign its visitors in as its own user
        raise refused
    caller = await authenticator.caller(Credential(who.password, who.name), address)
    if caller.user is None:
        raise NotAuthenticated("the name or the password is wrong")
    seconds = settings.token_hours * 3600
    token = await to_thread.run_sync(tokens.issue, platform, caller.user, seconds)
    older = session_cookie(request)
    if older is not None:
        await to_thread.run_sync(accounts.revoke_token, platform, older)
    give_cookie(response, request, token, seconds)


@router.delete("/session", status_code=204, response_class=Response, dependencies=[for_accounts])
def end(request: Request, response: Response, platform: ThePlatform, caller: TheCaller) -> None:
    """Sign out. The token ends on the server, not only in the browser."""
    if caller.token is not None:
        accounts.revoke_token(platform, caller.token)
    take_cookie_back(response, request)


@router.get("/me")
def me(viewer: Viewer) -> cluster.Me:
    """Return the user to whom the credential belongs, and the version of the server."""
    return cluster.Me(name=viewer.name, role=cluster.RoleName(viewer.role.value), version=version())
