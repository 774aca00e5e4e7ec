"""Users: ``/api/v1/users``. Admins add, list and remove them; everybody may set their own password. Room: api."""

from __future__ import annotations

from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Response

from edt_api import pictures, schemas, threads
from edt_api.context import AdminViewer, TheAddress, TheHouse, TheKey, ThePasswords, Viewer, for_admins
from edt_api.errors import Forbidden, RequestInvalid, WrongPassword
from edt_api.paging import Cursor, Limit, cursor_of, cut, number_of
from edt_scheduler import operations
from edt_scheduler.once import once
from edt_scheduler.views import Role

router = APIRouter(prefix="/api/v1/users")


@router.get("", dependencies=[for_admins])
def listing(house: TheHouse, limit: Limit = 100, cursor: Cursor = None) -> schemas.UserPage:
    """Users by name."""
    after = number_of("users", cursor) or 0
    page, more = cut(operations.users(house, limit=limit + 1, after=after), limit)
    return schemas.UserPage(
        items=[pictures.user(each) for each in page],
        next=cursor_of("users", page[-1].id if more else None),
    )


@router.post("", status_code=201)
async def add(
    house: TheHouse,
    passwords: ThePasswords,
    viewer: AdminViewer,
    address: TheAddress,
    new: schemas.NewUser,
    key: TheKey = None,
) -> schemas.User:
    """Add a user. The name of a removed one may be given again: to a new user, who owns nothing of the old one's.

    With an ``Idempotency-Key`` it may be sent again: for a day the same name and role get the same answer. The
    password is no part of that: what is kept of it is argon2's hash and nothing quicker to guess by.
    """
    meant_once = once(key, "POST users", new.name, new.role.value) if key is not None else None
    stored = await passwords.hash(new.password, viewer.id, address)
    role = Role(new.role.value)
    add_user = partial(operations.add_user, house, new.name, stored, role, by=viewer, once=meant_once)
    return pictures.user(await to_thread.run_sync(add_user))


@router.delete("/{name}", status_code=204, dependencies=[for_admins])
async def remove(house: TheHouse, name: str) -> Response:
    """Remove a user and their tokens, and stop their jobs. The last admin stays.

    With thousands of jobs that takes some seconds; where it is broken off, the platform goes on with it by itself."""
    await threads.bulk.run(operations.remove_user, house, name)
    return Response(status_code=204)


@router.put("/{name}/password", status_code=204)
async def set_password(
    house: TheHouse,
    passwords: ThePasswords,
    viewer: Viewer,
    address: TheAddress,
    name: str,
    new: schemas.NewPassword,
) -> Response:
    """Set a password; every token of that user ends. Others' passwords are set by admins only.

    One's own needs the current one beside it, an admin's too: who finds a page left open does not get the account. A
    wrong one counts as any wrong password does.
    """
    if name != viewer.name and not viewer.is_admin:
        raise Forbidden("another user's password is set by an admin only")
    if name == viewer.name:
        if new.current_password is None:
            raise RequestInvalid("current_password: your own password is changed with the one you have now beside it")
        if not await passwords.verify(name, new.current_password, viewer, address):
            raise WrongPassword
    stored = await passwords.hash(new.password, viewer.id, address)
    user = viewer if name == viewer.name else await to_thread.run_sync(operations.user, house, name)
    await to_thread.run_sync(operations.set_password, house, user, stored)
    return Response(status_code=204)
