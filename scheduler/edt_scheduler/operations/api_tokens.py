"""Use cases of API tokens, which users make for their programs.

A token has a scope and, unless it is to stay valid for ever, an end. It never allows more than its user's role allows
when it is used. A new password of the user and the user's removal end all of the user's tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Row

from edt_scheduler.errors import NoSuchToken, TokenInvalid
from edt_scheduler.model.states import SCOPES_OF_ROLE, Scope
from edt_scheduler.operations.accounts import same_user
from edt_scheduler.platform import Platform
from edt_scheduler.store import api_tokens as store
from edt_scheduler.store import to_views, users
from edt_scheduler.store.database import retried
from edt_scheduler.views import ApiTokenView, UserView, view_of

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@ -]{0,63}")
MOST_TOKENS = 100
"""The most tokens of one user."""


class TokenUser(NamedTuple):
    """Whom an API token admits."""

    token: int
    """The token's number."""
    user: UserView
    """The user with the token's scope."""


@retried(if_done=True)
def create(
    platform: Platform, user: UserView, *, name: str, scope: Scope, secret: str, expires_at: float | None
) -> ApiTokenView:
    """Store a new token of this user, of which only the SHA-256 is kept.

    Args:
        platform: The open platform.
        user: The user, as they were when their password or session was checked.
        name: What the user calls it.
        scope: What it allows at most.
        secret: The token. It must be random enough that nobody can guess it from its SHA-256.
        expires_at: Until when it is valid, in seconds since the epoch; None: for ever.

    Raises:
        TokenInvalid: The name is not allowed, the role of the user does not allow the scope, or the user has too many
            tokens.
        NoSuchUser: The user was removed.
        PasswordChanged: The password has changed since ``user`` was read.
    """
    if not NAME.fullmatch(name):
        raise TokenInvalid(
            "name", f"{name[:80]!r}: letters, digits, blanks and _ . @ -, at most 64, beginning with a letter or digit"
        )
    if scope not in SCOPES_OF_ROLE[user.role]:
        raise TokenInvalid("scopes", f"the role {user.role} does not allow {scope}")
    with platform.database.transaction() as tx:
        user_id = same_user(user, users.get(tx, user.id))
        if len(store.of_user(tx, user_id, MOST_TOKENS)) == MOST_TOKENS:
            raise TokenInvalid("name", f"{user.name} has {MOST_TOKENS} tokens already: revoke one of them first")
        return _view(store.add(tx, user_id, name, scope, secret, platform.clock(), expires_at))


def tokens_of(platform: Platform, user: UserView, *, limit: int | None = None, after: int = 0) -> list[ApiTokenView]:
    """At most ``limit`` tokens of this user, oldest first, with numbers above ``after``; None: all of them."""
    with platform.database.snapshot() as tx:
        return [_view(row) for row in store.of_user(tx, user.id, limit, after)]


@retried(if_done=False)
def revoke(platform: Platform, number: int, *, by: UserView) -> ApiTokenView:
    """End a token at once. Users revoke their own tokens, admins those of all users.

    Returns:
        The token that was revoked.

    Raises:
        NoSuchToken: There is no such token, or it is another user's and ``by`` is no admin.
    """
    with platform.database.transaction() as tx:
        row = store.get(tx, number)
        if row is None or (row.user_id != by.id and not by.is_admin):
            raise NoSuchToken(number)
        store.drop(tx, number)
        return _view(row)


def verify(platform: Platform, secret: str) -> TokenUser | None:
    """Whom this token admits; None: it is unknown, revoked or expired."""
    with platform.database.snapshot() as tx:
        row = store.owner(tx, secret, platform.clock())
    return TokenUser(row.token_id, to_views.user(row, Scope(row.scope))) if row is not None else None


@retried(if_done=True)
def record_uses(platform: Platform, times: Mapping[int, float]) -> None:
    """Note when tokens were last used: number to seconds since the epoch."""
    with platform.database.transaction() as tx:
        store.used(tx, times)


def _view(row: Row[Any]) -> ApiTokenView:
    return view_of(ApiTokenView, row._mapping, number=row.id, scope=Scope(row.scope))
