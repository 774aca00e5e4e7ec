"""Who may come in by which door: the whole rule on one page. Room: api. Pure.

Whatever is not listed here, be it a route that somebody adds tomorrow, opens to signed-in users alone: not to
the anonymous, not to nodes, not to whoever holds the join token. Next: auth.py, which finds out who knocks.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from edt_api.errors import ApiError, Forbidden, NotAuthenticated
from edt_scheduler.views import UserView


class Door(enum.Enum):
    """Whom a door opens to."""

    ANYONE = "anyone"  # no credential is looked at
    USER = "user"  # any user; what belongs to others does not exist for them
    ADMIN = "admin"  # users of the role admin
    NODE = "node"  # the node whose name stands in the path, by its own token
    JOIN = "join"  # whoever holds the join token


@dataclass(frozen=True)
class Caller:
    """Who knocks: one of these, or nobody."""

    user: UserView | None = None
    by_password: bool = False
    """The user showed a password, not a token."""
    node: str | None = None
    joins: bool = False
    """Holds the join token."""


NOBODY = Caller()

_NODE = r"/api/v1/nodes/(?P<node>[^/]+)"
_EXCEPTIONS: tuple[tuple[Door, str, re.Pattern[str]], ...] = tuple(
    (door, method, re.compile(path))
    for door, method, path in (
        (Door.ANYONE, "GET", r"/livez"),
        (Door.ANYONE, "GET", r"/readyz"),
        (Door.JOIN, "POST", r"/api/v1/nodes"),
        (Door.NODE, "GET", rf"{_NODE}/assignments"),
        (Door.NODE, "POST", rf"{_NODE}/reports"),
        (Door.ADMIN, "POST", rf"{_NODE}/(cordon|uncordon|drain)"),
        (Door.ADMIN, "GET", r"/api/v1/users"),
        (Door.ADMIN, "POST", r"/api/v1/users"),
        (Door.ADMIN, "DELETE", r"/api/v1/users/[^/]+"),
    )
)
"""Every door that is not simply the users'."""


def door(method: str, path: str) -> tuple[Door, str | None]:
    """The door of a request, and the node it is reserved for, if it is one's."""
    for whose, of_method, pattern in _EXCEPTIONS:
        match = pattern.fullmatch(path) if of_method == method else None
        if match:
            return whose, match.groupdict().get("node")
    return Door.USER, None


_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OTHER_SITES = frozenset({"cross-site", "same-site"})


def sent_by_a_page(method: str, fetch_site: str | None) -> ApiError | None:
    """Why a request is refused that another site's page had a browser send, with the password the browser keeps.

    Browsers say so in ``Sec-Fetch-Site``, which pages cannot set; other clients do not send it.
    """
    if method not in _CHANGES_NOTHING and fetch_site in _OTHER_SITES:
        return Forbidden("a page of another site may not change anything here")
    return None


def refusal(caller: Caller, whose: Door, node: str | None) -> ApiError | None:
    """Why this caller may not come in by this door; None: come in."""
    if whose is Door.ANYONE:
        return None
    if caller == NOBODY:
        return NotAuthenticated("no valid credential: sign in by Basic, Bearer or X-Auth-Token")
    admitted = {
        Door.USER: caller.user is not None,
        Door.ADMIN: caller.user is not None and caller.user.is_admin,
        Door.NODE: caller.node is not None and caller.node == node,
        Door.JOIN: caller.joins,
    }[whose]
    if admitted:
        return None
    wanted = {
        Door.USER: "a user",
        Door.ADMIN: "an admin",
        Door.NODE: f"node {node} itself",
        Door.JOIN: "whoever holds the join token",
    }[whose]
    return Forbidden(f"this is open to {wanted} only")
