"""Settings of the API: EDT_ variables, those of the scheduler among them."""

from __future__ import annotations

from typing import Annotated

from limits import RateLimitItem, parse
from pydantic import Field, PlainValidator, SecretStr, field_validator

from edt_api.access.logon_limits import Limits
from edt_api.schemas.cluster import LEAST_PASSWORD, MOST_PASSWORD
from edt_api.submissions.archives.tree import LIMITS
from edt_scheduler import settings as scheduler


def _limit(text: object) -> RateLimitItem:
    if isinstance(text, RateLimitItem):
        return text
    try:
        limit = parse(str(text))
    except ValueError:
        limit = None
    if limit is None or limit.amount < 1:
        raise ValueError(f"got {str(text)!r}; it takes a limit such as '100 per 15 minutes'")
    return limit


_Limit = Annotated[RateLimitItem, PlainValidator(_limit)]


class Settings(scheduler.Settings):
    """All settings of the API. Each name is that of its environment variable without EDT_, in small letters."""

    host: str = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` for a cluster, behind TLS."""
    port: int = Field(default=9280, ge=0, le=65535)
    """WMLA's own port for plain HTTP. 0: a free one."""
    admin_password: SecretStr | None = None
    """Password of the user ``admin`` who is made at the first start; unset: a random one, printed once."""
    join_token: SecretStr | None = None
    """What a node shows to register; unset: the content of ``join-token`` in the home, made at first start."""
    upload_bytes: int = Field(default=LIMITS.upload_bytes, gt=0)
    """The largest body of a submission."""
    uploads_per_user: int = Field(default=4, gt=0)
    """So many submissions of one user are taken in at a time; others wait a few seconds, then they are refused: 429."""
    uploads_at_once: int = Field(default=64, gt=0)
    """So many submissions of all users are taken in at a time."""
    token_hours: float = Field(default=12.0, gt=0)
    """How long a token from ``GET /auth/v1/logon`` holds."""
    logon_per_address: _Limit = Limits().per_address
    """Wrong passwords from one address; then those from there are refused, but of users who have signed in there."""
    logon_per_user: _Limit = Limits().per_user
    """Wrong passwords for one user; then the user's are refused, but at addresses where they have signed in."""
    logon_per_user_and_address: _Limit = Limits().per_user_and_address
    """Wrong passwords for one user from one address; then the user's are refused there."""
    forwarded_allow_ips: str = ""
    """Addresses of proxies whose X-Forwarded-For, -Proto and -Host are believed; empty: nobody's are."""

    @field_validator("admin_password", mode="after")
    @classmethod
    def _long_enough(cls, password: SecretStr | None) -> SecretStr | None:
        if password is not None and not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
            raise ValueError(
                f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters, this one has {len(password)}: "
                "set a longer one, or leave the variable out and the first start makes one up and shows it"
            )
        return password

    @property
    def logon_limits(self) -> Limits:
        return Limits(self.logon_per_address, self.logon_per_user, self.logon_per_user_and_address)
