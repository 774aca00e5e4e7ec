"""Who may come in by which door: the whole rule on one page. Room: api. Pure.

Whatever is not listed here, be it a route that somebody adds tomorrow, opens to signed-in users alone: not to
the anonymous, not to nodes, not to whoever holds the join token. Next: auth.py, which finds out who knocks.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

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
class Credential:
    """What a request shows: a name with a password, or a token."""

    secret: str = field(repr=False)
    name: str | None = None
    """None: ``secret`` is a token."""


@dataclass(frozen=True)
class Caller:
    """Who knocks: one of these, or nobody."""

    user: UserView | None = None
    node: str | None = None
    joins: bool = False
    """Holds the join token."""
    credential: Credential | None = None
    """What was shown, and was right."""

    @property
    def token(self) -> str | None:
        """The token that was shown; None: it was a name and a password."""
        shown = self.credential
        return shown.secret if shown is not None and shown.name is None else None


NOBODY = Caller()

_NODE = r"/api/v1/nodes/(?P<node>[^/]+)"
_EXCEPTIONS: tuple[tuple[Door, str, re.Pattern[str]], ...] = tuple(
    (door, method, re.compile(path))
    for door, method, path in (
        (Door.ANYONE, "GET", r"/livez"),
        (Door.ANYONE, "GET", r"/readyz"),
        *((Door.ANYONE, method, path) for method in ("GET", "HEAD") for path in (r"/", r"/ui", r"/ui/.*")),
        (Door.ANYONE, "POST", r"/api/v1/session"),
        (Door.JOIN, "POST", r"/api/v1/nodes"),
        (Door.NODE, "GET", rf"{_NODE}/assignments"),
        (Door.NODE, "POST", rf"{_NODE}/(images|reports|usage)"),
        (Door.ADMIN, "POST", rf"{_NODE}/(cordon|uncordon|drain)"),
        (Door.ADMIN, "DELETE", _NODE),
        (Door.ADMIN, "POST", r"/api/v1/images"),
        (Door.ADMIN, "DELETE", r"/api/v1/images/.+"),
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


def changes(method: str) -> bool:
    return method not in _CHANGES_NOTHING


def by_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser asks. On a plain address it does not say ``Sec-Fetch-…``; each calls itself Mozilla, though.

    So does PowerShell, which says its own name too.
    """
    agent = headers.get("user-agent", "")
    return "sec-fetch-mode" in headers or (agent.startswith("Mozilla/") and "PowerShell/" not in agent)


def sent_by_a_page(method: str, fetch_site: str | None) -> ApiError | None:
    """Why a request is refused that another site's page had a browser send, with the password the browser keeps.

    Browsers say so in ``Sec-Fetch-Site``, which pages cannot set; other clients do not send it.
    """
    if changes(method) and fetch_site in _OTHER_SITES:
        return Forbidden("a page of another site may not change anything here")
    return None


_DEFAULT_PORTS = {"http": 80, "https": 443}


def wrong_origin(origin: str | None, scheme: str, host: str) -> ApiError | None:
    """Why a change is refused that a browser sent with what it keeps: its page must be one of this very server.

    ``scheme`` and ``host`` are how the request reached us. Browsers name the ``Origin`` with every change, pages
    cannot forge it; ``null`` is what a page without an origin has.
    """
    if origin is None:
        return Forbidden("a change that a browser makes by its session or password must come with an Origin header")
    if _place(origin) is not None and _place(origin) == _place(f"{scheme}://{host}"):
        return None
    return Forbidden(
        f"the Origin {origin[:128]!r} is not this server, {scheme}://{host[:128]}; "
        "behind a proxy, name it in EDT_FORWARDED_ALLOW_IPS so that its X-Forwarded headers are believed"
    )


def _place(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port; None for what is no origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, port


_UNKNOWN = "no valid credential: sign in by Basic, Bearer, X-Auth-Token or a session"
_UNKNOWN_JOINER = (
    "the join token is wrong, or there is none: a node shows (as Bearer) what the server keeps in EDT_HOME/join-token, "
    "or was given by EDT_JOIN_TOKEN"
)


def refusal(caller: Caller, whose: Door, node: str | None) -> ApiError | None:
    """Why this caller may not come in by this door; None: come in."""
    if whose is Door.ANYONE:
        return None
    if caller == NOBODY:
        return NotAuthenticated(_UNKNOWN_JOINER if whose is Door.JOIN else _UNKNOWN)
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
