"""Signing in and out: ``/auth/v1``, as WMLA 2.x has it. access/tokens.py makes the tokens."""

from __future__ import annotations

from fastapi import APIRouter

from edt_api.access import tokens
from edt_api.dependencies import TheCaller, ThePlatform, TheSettings, Viewer, for_accounts
from edt_api.errors import NotAuthenticated
from edt_api.schemas import jobs
from edt_scheduler.operations import accounts

router = APIRouter(prefix="/auth/v1")


@router.get("/logon")
@router.get("/logon/", include_in_schema=False)
def logon(platform: ThePlatform, settings: TheSettings, caller: TheCaller, viewer: Viewer) -> jobs.Logon:
    """Return a token for a name and a password.

    The token is a JWT. A request with a token is refused: otherwise a client could renew its token for ever.
    """
    if caller.token is not None:
        raise NotAuthenticated("sign in with a name and a password (Authorization: Basic)")
    seconds = settings.token_hours * 3600
    return jobs.Logon(
        accessToken=tokens.issue(platform, viewer, seconds),
        username=viewer.name,
        role=tokens.wmla_role(viewer.role),
        expiresIn=int(seconds),
    )


@router.post("/logoff", dependencies=[for_accounts])
@router.post("/logoff/", include_in_schema=False, dependencies=[for_accounts])
def logoff(platform: ThePlatform, caller: TheCaller) -> jobs.Message:
    """End the token of this request. A request with a password ends nothing, and one with an API token is refused."""
    if caller.token is not None:
        accounts.revoke_token(platform, caller.token)
    return jobs.Message(message="Signed off.")
