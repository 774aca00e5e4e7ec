"""Makes and verifies the access tokens of users, and makes the secrets of their API tokens.

An API token (``operations.api_tokens``) is a random text. An access token is a JWT (RFC 7519), because WMLA's clients
expect three parts and some of them read the claims. It is valid only while the store also has its row, so a logoff, a
new password and the removal of the user end it at once. Nothing is decided by its claims but its end: who the user is
and what role the user has now comes from the store (docs/decisions/0031).

The signing key is derived from the platform's secret key, and the header names that key. After a new key was added to
the file, tokens that an older key has signed stay valid as long as the file keeps the older key.

All tokens have the same length, because ``dlicmd --logon`` writes a token over an older one without truncating the
file.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

import jwt

from edt_scheduler.model.states import SCOPES_OF_ROLE, Role
from edt_scheduler.operations import accounts
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

ISSUER = AUDIENCE = "OpenEDT"
_ALGORITHM = "HS256"
_CLAIMS_BYTES = 480
"""Length of the claims as JSON, filled up by the claim ``pad``. The longest name needs 430 bytes."""
_JTI_BYTES = 16
API_TOKEN = "edt_pat_"  # noqa: S105 - only the beginning of one
"""How API tokens begin. Programs that look for secrets in source code know such a token by it."""
_API_TOKEN_BYTES = 32


def wmla_role(role: Role) -> str:
    """Return the role as WMLA writes it: ``Admin``, ``User`` or ``Viewer``."""
    return role.value.capitalize()


def issue(platform: Platform, user: UserView, lifetime_seconds: float) -> str:
    """Make a token for this user.

    Args:
        platform: the open platform, whose clock counts.
        user: the user, as they were when their password was checked.
        lifetime_seconds: for how long the token is valid. Tokens count whole seconds, at least one.

    Returns:
        The token. The platform stores its SHA-256 only.

    Raises:
        NoSuchUser: the user was removed.
        PasswordChanged: the password has changed since ``user`` was read.
    """
    issued_at = int(platform.clock())
    expires_at = issued_at + max(1, int(lifetime_seconds))
    claims: dict[str, Any] = {
        "username": user.name,
        "role": wmla_role(user.role),
        "permissions": SCOPES_OF_ROLE[user.role],
        "groups": [],
        "sub": user.name,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "uid": str(user.id),
        "authenticator": "default",
        "iat": issued_at,
        "exp": expires_at,
        "jti": secrets.token_hex(_JTI_BYTES),
        "pad": "",
    }
    claims["pad"] = "0" * (_CLAIMS_BYTES - len(json.dumps(claims, separators=(",", ":"))))
    keys = platform.secret_key.keys()
    key_id = keys.ids[0]
    key = keys.signing_key(key_id)
    assert key is not None  # the id is one of the file's
    token = jwt.encode(claims, key, _ALGORITHM, headers={"kid": key_id})
    accounts.add_token(platform, user, token, float(expires_at))
    return token


def new_api_token() -> str:
    """Return the secret of a new API token."""
    return API_TOKEN + secrets.token_urlsafe(_API_TOKEN_BYTES)


def user_of(platform: Platform, token: str) -> UserView | None:
    """Return the user whose token this is.

    Returns:
        None if the token is none of this platform's, was changed or revoked, or has expired.
    """
    key = _key_of(platform, token)
    if key is None:
        return None
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[_ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            # Its times are compared here, with the platform's clock.
            options={"require": ["exp", "iat", "jti", "iss", "aud"], "verify_exp": False, "verify_iat": False},
        )
    except jwt.InvalidTokenError:
        return None
    if claims["exp"] <= platform.clock():
        return None
    return accounts.verify_token(platform, token)


def _key_of(platform: Platform, token: str) -> bytes | None:
    """Return the key that the token's header names; None if there is no such key.

    The file is read again only for a key that is not known yet: a request must not wait for the home's disk.
    """
    try:
        key_id = str(jwt.get_unverified_header(token).get("kid"))
    except (jwt.InvalidTokenError, RecursionError):  # older releases of PyJWT raise the latter for lists in lists
        return None
    known = platform.secret_key.last_read()
    return known.signing_key(key_id) or platform.secret_key.keys().signing_key(key_id)
