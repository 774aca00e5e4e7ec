"""Users: ``/api/v1/users``. Admins add, list and remove users. Every user may set their own password."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from anyio import to_thread
from fastapi import APIRouter, Response

from edt_api import concurrency
from edt_api.dependencies import AccountViewer, AdminViewer, TheAddress, TheKey, ThePasswords, ThePlatform, for_admins
from edt_api.errors import Forbidden, RequestInvalid, WrongPassword
from edt_api.http import Cursor, Limit, paged
from edt_api.schemas import cluster
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts

router = APIRouter(prefix="/api/v1/users")


@router.get("", dependencies=[for_admins])
def listing(platform: ThePlatform, limit: Limit = 100, cursor: Cursor = None) -> cluster.UserPage:
    """List the users, ordered by name."""
    find = partial(accounts.users, platform)
    return paged(cluster.UserPage, "users", find, attrgetter("id"), limit, cursor)


@router.post("", status_code=201)
async def add(
    platform: ThePlatform,
    passwords: ThePasswords,
    viewer: AdminViewer,
    address: TheAddress,
    new: cluster.NewUser,
    key: TheKey = None,
) -> cluster.User:
    """Add a user. A new user may get the name of a removed user, but owns nothing of the removed user.

    A request with an ``Idempotency-Key`` may be sent again. For a day the same name and role get the same answer. The
    password is not compared: only its argon2 hash is stored, and no other hash that would be faster to guess.
    """
    idempotent = IdempotentRequest.of(key, "POST users", new.name, new.role.value) if key is not None else None
    stored = await passwords.hash(new.password, viewer.id, address)
    role = Role(new.role.value)
    add_user = partial(accounts.add_user, platform, new.name, stored, role, by=viewer, request=idempotent)
    return cluster.User.model_validate(await to_thread.run_sync(add_user))


@router.delete("/{name}", status_code=204, response_class=Response, dependencies=[for_admins])
async def remove(platform: ThePlatform, name: str) -> None:
    """Remove a user and their tokens, and stop their jobs. The last admin cannot be removed.

    Thousands of jobs take some seconds. If the request is interrupted, the platform stops the other jobs by itself.
    """
    await concurrency.bulk.run(accounts.remove_user, platform, name)


@router.put("/{name}/password", status_code=204, response_class=Response)
async def set_password(
    platform: ThePlatform,
    passwords: ThePasswords,
    viewer: AccountViewer,
    address: TheAddress,
    name: str,
    new: cluster.NewPassword,
) -> None:
    """Set a user's password. All tokens of that user end, API tokens too. Only admins may set another user's password.

    Users who set their own password, admins too, must also send their current password. So a person who finds an open
    page cannot take over the account. A wrong current password counts as a failed attempt to sign in.
    """
    if name != viewer.name and not viewer.is_admin:
        raise Forbidden("another user's password is set by an admin only")
    if name == viewer.name:
        if new.current_password is None:
            raise RequestInvalid("current_password: your own password is changed with the one you have now beside it")
        if not await passwords.verify(name, new.current_password, viewer, address):
            raise WrongPassword
    stored = await passwords.hash(new.password, viewer.id, address)
    user = viewer if name == viewer.name else await to_thread.run_sync(accounts.user, platform, name)
    await to_thread.run_sync(accounts.set_password, platform, user, stored)
