"""Signing in and out: ``/auth/v1``, as WMLA 2.x has it.

All tokens have the same length, because ``dlicmd --logon`` writes a token over an older one without truncating the
file.
"""

from __future__ import annotations

from fastapi import APIRouter

from edt_api.dependencies import TheCaller, ThePlatform, TheSettings, Viewer, for_users
from edt_api.errors import NotAuthenticated
from edt_api.schemas import jobs
from edt_scheduler.operations import accounts

router = APIRouter(prefix="/auth/v1")


@router.get("/logon")
def logon(platform: ThePlatform, settings: TheSettings, caller: TheCaller, viewer: Viewer) -> jobs.Logon:
    """Return a token for a name and a password.

    A request with a token is refused: otherwise a client could renew its token for ever.
    """
    if caller.token is not None:
        raise NotAuthenticated("sign in with a name and a password (Authorization: Basic)")
    seconds = settings.token_hours * 3600
    return jobs.Logon(
        accessToken=accounts.issue_token(platform, viewer, seconds),
        username=viewer.name,
        role="Admin" if viewer.is_admin else "User",
        expiresIn=int(seconds),
    )


@router.post("/logoff", dependencies=[for_users])
def logoff(platform: ThePlatform, caller: TheCaller) -> jobs.Message:
    """End the token of this request. A request with a password ends nothing."""
    if caller.token is not None:
        accounts.revoke_token(platform, caller.token)
    return jobs.Message(message="Signed off.")
