"""API tokens: ``/api/v1/tokens``. Users make them for their programs, list and revoke them.

A token cannot make, list or revoke tokens, nor change a password: whoever finds one gets no further than it reaches.
"""

from __future__ import annotations

import logging
from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from edt_api import to_wire
from edt_api.access import tokens
from edt_api.dependencies import AccountViewer, TheAddress, ThePlatform
from edt_api.errors import Forbidden
from edt_api.http import Cursor, Limit, paged
from edt_api.schemas import cluster
from edt_scheduler.model.states import Scope
from edt_scheduler.operations import accounts, api_tokens

log = logging.getLogger("edt.api")
router = APIRouter(prefix="/api/v1/tokens")

_DAY_SECONDS = 86_400


@router.post("", status_code=201)
def make(
    platform: ThePlatform, viewer: AccountViewer, address: TheAddress, new: cluster.NewApiToken
) -> cluster.MadeApiToken:
    """Make an API token for the caller. Only this answer holds its secret.

    The token allows what its scopes and the role of its user both allow when it is used. A new password of the user,
    and the removal of the user, end it.
    """
    secret = tokens.new_api_token()
    scope = [each for each in Scope if cluster.ScopeName(each.value) in new.scopes][-1]
    expires_at = None if new.days is None else platform.clock() + new.days * _DAY_SECONDS
    made = api_tokens.create(platform, viewer, name=new.name, scope=scope, secret=secret, expires_at=expires_at)
    until = "for ever" if new.days is None else f"for {new.days} days"
    log.info(
        "%s at %s made the API token %d (%r) of the scope %s, valid %s",
        viewer.name,
        address,
        made.number,
        made.name,
        made.scope,
        until,
    )
    return cluster.MadeApiToken(**vars(to_wire.api_token(made)), token=secret)


@router.get("")
def listing(
    platform: ThePlatform,
    viewer: AccountViewer,
    user: Annotated[str | None, Query(max_length=64, description="Whose tokens. Only an admin names others.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> cluster.ApiTokenPage:
    """List the caller's API tokens, oldest first. Expired ones are listed for another 30 days."""
    if user is not None and user != viewer.name and not viewer.is_admin:
        raise Forbidden("another user's tokens are listed by an admin only")
    whose = viewer if user is None else accounts.user(platform, user)
    find = partial(api_tokens.tokens_of, platform, whose)
    return paged(cluster.ApiTokenPage, "tokens", find, attrgetter("number"), limit, cursor, to_wire.api_token)


@router.delete("/{number}", status_code=204, response_class=Response)
def revoke(
    platform: ThePlatform,
    viewer: AccountViewer,
    address: TheAddress,
    number: Annotated[int, Path(ge=1, lt=1 << 63)],
) -> None:
    """Revoke an API token: it is refused from now on. An admin may revoke tokens of all users."""
    gone = api_tokens.revoke(platform, number, by=viewer)
    log.info("%s at %s revoked the API token %d (%r) of %s", viewer.name, address, number, gone.name, gone.owner)
