"""The access rules of the API, all on one page. Pure.

A request that is not listed here is open to signed-in users only, and if its method can change something, only to
users who may change something: not to the role viewer, and not to API tokens of the scope ``read``. This also holds for
routes that are added later. Anonymous callers, nodes and holders of the join token cannot send it. Next: guard.py,
which finds the caller of a request.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from edt_api.errors import ApiError, Forbidden, NotAuthenticated
from edt_scheduler.model.states import Role, Scope
from edt_scheduler.views import UserView


class Audience(enum.Enum):
    """Who may call a route."""

    ANYONE = "anyone"  # everybody; no credential is read
    USER = "user"  # any user; what changes something needs more than the role viewer or a token of the scope read
    READER = "reader"  # any user by any credential: the request changes nothing, whatever its method is
    ACCOUNT = "account"  # any user, viewers too, but no API token
    ADMIN = "admin"  # users with the role admin; an API token needs the scope admin
    NODE = "node"  # the node that the path names, with its own token
    JOIN = "join"  # anybody who sends the join token
    NODE_JOIN = "node-join"  # anybody who sends the join token, or that of the one node that the request names


@dataclass(frozen=True)
class Credential:
    """The credential of a request: a name with a password, or a token."""

    secret: str = field(repr=False)
    name: str | None = None
    """Name of the user; None if ``secret`` is a token."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request: a user, a node, a holder of the join token, or nobody."""

    user: UserView | None = None
    node: str | None = None
    joins: bool = False
    """Whether the caller sent the join token."""
    credential: Credential | None = None
    """The valid credential that the caller sent."""
    api_token: int | None = None
    """Number of the API token that the caller sent; None if the credential is another one."""

    @property
    def token(self) -> str | None:
        """The token that the caller sent; None if the caller sent a name and a password."""
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
        (Audience.ACCOUNT, "DELETE", r"/api/v1/session"),
        (Audience.ACCOUNT, "POST", r"/auth/v1/logoff/?"),
        (Audience.ACCOUNT, "GET", r"/platform/rest/conductor/v1/auth/logoff/?"),
        (Audience.ACCOUNT, "POST", r"/dlim/v1/auth/token/?"),
        (Audience.ACCOUNT, "PUT", r"/api/v1/users/[^/]+/password"),
        *((Audience.ACCOUNT, method, r"/api/v1/tokens") for method in ("GET", "POST")),
        (Audience.ACCOUNT, "DELETE", r"/api/v1/tokens/[^/]+"),
        (Audience.READER, "POST", r"/api/v1/what-if"),
        (Audience.NODE_JOIN, "POST", r"/api/v1/nodes"),
        (Audience.JOIN, "PUT", r"/api/v1/pools/[^/]+"),
        (Audience.JOIN, "POST", r"/api/v1/pools/[^/]+/sync"),
        *((Audience.ADMIN, method, r"/api/v1/pools/[^/]+") for method in ("PATCH", "DELETE")),
        (Audience.NODE, "GET", rf"{_NODE}/assignments"),
        (Audience.NODE, "POST", rf"{_NODE}/(images|leaving|reports|usage)"),
        (Audience.ADMIN, "POST", rf"{_NODE}/(cordon|uncordon|drain)"),
        (Audience.ADMIN, "DELETE", _NODE),
        (Audience.ADMIN, "POST", r"/api/v1/images"),
        (Audience.ADMIN, "DELETE", r"/api/v1/images/.+"),
        (Audience.ADMIN, "POST", r"/api/v1/frameworks"),
        (Audience.ADMIN, "DELETE", r"/api/v1/frameworks/[^/]+"),
        *((Audience.ADMIN, method, r"/api/v1/queues/.*") for method in ("PUT", "DELETE")),
        (Audience.ADMIN, "DELETE", r"/platform/rest/deeplearning/v1/resplans/resplan/.*"),
        (Audience.ADMIN, "GET", r"/api/v1/decisions"),
        (Audience.ADMIN, "GET", r"/api/v1/decisions/[^/]+"),
        (Audience.ADMIN, "GET", r"/api/v1/users"),
        (Audience.ADMIN, "POST", r"/api/v1/users"),
        (Audience.ADMIN, "DELETE", r"/api/v1/users/[^/]+"),
    )
)
"""Every request that is not simply open to users: its audience, its method and its path."""


def audience_of(method: str, path: str) -> tuple[Audience, str | None]:
    """Return the audience of a request and, for Audience.NODE, the name of that node."""
    for audience, of_method, pattern in _EXCEPTIONS:
        match = pattern.fullmatch(path) if of_method == method else None
        if match:
            return audience, match.groupdict().get("node")
    return Audience.USER, None


_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_OTHER_SITES = frozenset({"cross-site", "same-site"})


def changes(method: str) -> bool:
    """Whether a request with this method can change anything."""
    return method not in _CHANGES_NOTHING


def sent_by_a_page(method: str, fetch_site: str | None) -> ApiError | None:
    """Return the refusal of a change that a page of another site made the browser send; None if there is none.

    The browser adds the password that it keeps to such a request. Browsers name the sender's site in
    ``Sec-Fetch-Site``, and pages cannot set this header. Other clients do not send it.
    """
    if changes(method) and fetch_site in _OTHER_SITES:
        return Forbidden("a page of another site may not change anything here")
    return None


_DEFAULT_PORTS = {"http": 80, "https": 443}


def wrong_origin(origin: str | None, scheme: str, host: str) -> ApiError | None:
    """Return the refusal of a change that a page of another server sent; None if the page is one of this server.

    The browser adds its cookie or its password to such a request. Browsers send the ``Origin`` of the page with every
    change, and pages cannot forge it. A page without an origin sends ``null``.

    Args:
        origin: the ``Origin`` header. A request without the header (None) is refused.
        scheme: scheme with which the request reached this server.
        host: host with which the request reached this server.
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
    """Return scheme, host and port; None if the text is not an origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, port


_NODE_TOKEN = re.compile(r"[0-9a-f]{64}")


def claims_to_join(audience: Audience, credential: Credential | None) -> bool:
    """Whether a credential that nobody else has may be the token with which one node registers.

    Such a token says nothing of its node. So the route itself compares it with the node's name (dependencies.py).
    """
    token = credential.secret if credential is not None and credential.name is None else ""
    return audience is Audience.NODE_JOIN and _NODE_TOKEN.fullmatch(token) is not None


_UNKNOWN = "no valid credential: sign in by Basic, Bearer, X-Auth-Token or a session"
_UNKNOWN_JOINER = (
    "the join token is wrong, or there is none: a node shows (as Bearer) what the server keeps in EDT_HOME/join-token, "
    "or was given by EDT_JOIN_TOKEN"
)


_READS_ONLY = "the role viewer reads everything and changes nothing"
_NO_SCOPE = "this API token has the scope {}, and this needs the scope {}: make another token"
_SIGN_IN = "an API token does not open this: sign in with a name and a password"


def wrong_joiner() -> ApiError:
    """Return the refusal of a caller without the join token, and without the token of the node that is named."""
    return NotAuthenticated(_UNKNOWN_JOINER)


def refusal(caller: Caller, audience: Audience, node: str | None, method: str) -> ApiError | None:
    """Return the error that refuses this caller's request; None if the caller may send it.

    Args:
        caller: sender of the request.
        audience: who may call the route.
        node: name of the node that Audience.NODE stands for.
        method: method of the request.
    """
    if audience is Audience.ANYONE:
        return None
    if caller == NOBODY:
        return wrong_joiner() if audience in {Audience.JOIN, Audience.NODE_JOIN} else NotAuthenticated(_UNKNOWN)
    user = caller.user
    admitted, wanted = {
        Audience.USER: (user is not None, "a user"),
        Audience.READER: (user is not None, "a user"),
        Audience.ACCOUNT: (user is not None, "a user"),
        Audience.ADMIN: (user is not None and user.role is Role.ADMIN, "an admin"),
        Audience.NODE: (caller.node is not None and caller.node == node, f"node {node} itself"),
        Audience.JOIN: (caller.joins, "whoever holds the join token"),
        Audience.NODE_JOIN: (
            caller.joins or (user is None and caller.node is None and claims_to_join(audience, caller.credential)),
            "whoever holds the join token",
        ),
    }[audience]
    if not admitted:
        return Forbidden(f"this is open to {wanted} only")
    return _beyond(caller, user, audience, method) if user is not None else None


def _beyond(caller: Caller, user: UserView, audience: Audience, method: str) -> ApiError | None:
    """Return the refusal of what a user's role or API token does not allow; None if they allow the request."""
    if audience is Audience.ACCOUNT:
        return Forbidden(_SIGN_IN) if caller.api_token is not None else None
    if audience is Audience.ADMIN:
        return None if user.is_admin else Forbidden(_NO_SCOPE.format(user.scope, Scope.ADMIN))
    if audience is Audience.READER or user.may_change or not changes(method):
        return None
    return Forbidden(_READS_ONLY if user.role is Role.VIEWER else _NO_SCOPE.format(user.scope, Scope.SUBMIT))
