"""Who may ask what: the whole rule on one page. Pure.

Whatever is not listed here, be it a route that somebody adds tomorrow, opens to signed-in users alone: not to
the anonymous, not to nodes, not to whoever holds the join token. Next: guard.py, which finds out who asks.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from edt_api.errors import ApiError, Forbidden, NotAuthenticated
from edt_scheduler.views import UserView


class Audience(enum.Enum):
    """Whom a route answers."""

    ANYONE = "anyone"  # no credential is looked at
    USER = "user"  # any user; what belongs to others does not exist for them
    ADMIN = "admin"  # users of the role admin
    NODE = "node"  # the node that the path names, by its own token
    JOIN = "join"  # whoever holds the join token


@dataclass(frozen=True)
class Credential:
    """What a request shows: a name with a password, or a token."""

    secret: str = field(repr=False)
    name: str | None = None
    """None: ``secret`` is a token."""


@dataclass(frozen=True)
class Caller:
    """Who sends a request: one of these, or nobody."""

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
_EXCEPTIONS: tuple[tuple[Audience, str, re.Pattern[str]], ...] = tuple(
    (audience, method, re.compile(path))
    for audience, method, path in (
        (Audience.ANYONE, "GET", r"/livez"),
        (Audience.ANYONE, "GET", r"/readyz"),
        *((Audience.ANYONE, method, path) for method in ("GET", "HEAD") for path in (r"/", r"/ui", r"/ui/.*")),
        (Audience.ANYONE, "POST", r"/api/v1/session"),
        (Audience.JOIN, "POST", r"/api/v1/nodes"),
        (Audience.NODE, "GET", rf"{_NODE}/assignments"),
        (Audience.NODE, "POST", rf"{_NODE}/(images|reports|usage)"),
        (Audience.ADMIN, "POST", rf"{_NODE}/(cordon|uncordon|drain)"),
        (Audience.ADMIN, "DELETE", _NODE),
        (Audience.ADMIN, "POST", r"/api/v1/images"),
        (Audience.ADMIN, "DELETE", r"/api/v1/images/.+"),
        (Audience.ADMIN, "GET", r"/api/v1/users"),
        (Audience.ADMIN, "POST", r"/api/v1/users"),
        (Audience.ADMIN, "DELETE", r"/api/v1/users/[^/]+"),
    )
)
"""Every request that is not simply open to users."""


def audience_of(method: str, path: str) -> tuple[Audience, str | None]:
    """Whom a request is open to, and for Audience.NODE the name of that node."""
    for audience, of_method, pattern in _EXCEPTIONS:
        match = pattern.fullmatch(path) if of_method == method else None
        if match:
            return audience, match.groupdict().get("node")
    return Audience.USER, None


_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OTHER_SITES = frozenset({"cross-site", "same-site"})


def changes(method: str) -> bool:
    return method not in _CHANGES_NOTHING


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


def refusal(caller: Caller, audience: Audience, node: str | None) -> ApiError | None:
    """Why a request of this caller is refused; None: it is not."""
    if audience is Audience.ANYONE:
        return None
    if caller == NOBODY:
        return NotAuthenticated(_UNKNOWN_JOINER if audience is Audience.JOIN else _UNKNOWN)
    admitted, wanted = {
        Audience.USER: (caller.user is not None, "a user"),
        Audience.ADMIN: (caller.user is not None and caller.user.is_admin, "an admin"),
        Audience.NODE: (caller.node is not None and caller.node == node, f"node {node} itself"),
        Audience.JOIN: (caller.joins, "whoever holds the join token"),
    }[audience]
    return None if admitted else Forbidden(f"this is open to {wanted} only")
