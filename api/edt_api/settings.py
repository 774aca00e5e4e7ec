"""Settings of the API, read from EDT_ variables. They include the settings of the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from limits import RateLimitItem, parse
from pydantic import Field, PlainValidator, SecretStr, ValidationInfo, field_validator

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
    """All settings of the API. The environment variable of a setting is EDT_ and the setting's name in capitals."""

    host: str = "127.0.0.1"
    """Address to listen on. A cluster uses ``0.0.0.0``, with TLS, or behind a proxy that speaks TLS."""
    port: int = Field(default=9280, ge=0, le=65535)
    """Port to listen on; 9280 is WMLA's own port for plain HTTP. 0: any free port."""
    tls_certificate: Path | None = None
    """File with the certificate, and those of its authorities behind it, in PEM form. With it the API speaks TLS, and
    nothing else. Unset: it speaks plain HTTP.
    """
    tls_key: Path | None = Field(default=None, validate_default=True)
    """File with the key of ``tls_certificate``, in PEM form and not encrypted."""
    admin_password: SecretStr | None = None
    """Password of the user ``admin``, who is made at the first start. If unset: ``python -m edt_api --ensure-admin``
    makes a random one and prints it once.
    """
    join_token: SecretStr | None = None
    """Token with which a node registers. If unset: the content of ``join-token`` in the home, made at first start."""
    upload_bytes: int = Field(default=LIMITS.upload_bytes, gt=0)
    """The largest body of a submission, in bytes."""
    uploads_per_user: int = Field(default=4, gt=0)
    """How many submissions of one user the API receives at a time. Others wait some seconds and then get 429."""
    uploads_at_once: int = Field(default=64, gt=0)
    """How many submissions of all users together the API receives at a time."""
    token_hours: float = Field(default=12.0, gt=0)
    """How long a token of ``GET /auth/v1/logon`` is valid, in hours."""
    logon_per_address: _Limit = Limits().per_address
    """How many wrong passwords one address may send, and in which time. Further passwords from that address are then
    refused, except those of users who have signed in there before.
    """
    logon_per_user: _Limit = Limits().per_user
    """How many wrong passwords may come for one user, and in which time. Further passwords of that user are then
    refused, except at addresses where the user has signed in before.
    """
    logon_per_user_and_address: _Limit = Limits().per_user_and_address
    """How many wrong passwords may come for one user from one address, and in which time. Others then get 429."""
    forwarded_allow_ips: str = ""
    """Addresses of proxies whose X-Forwarded-For, -Proto and -Host headers the API believes; empty: none."""

    @field_validator("tls_certificate", "tls_key", mode="before")
    @classmethod
    def _empty_is_unset(cls, path: object) -> object:
        if isinstance(path, str) and "\n" in path:
            raise ValueError("it takes the path of a file, not what is in the file")
        return path or None

    @field_validator("tls_key", mode="after")
    @classmethod
    def _with_its_certificate(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if (key is None) != (info.data.get("tls_certificate") is None):
            raise ValueError("a certificate and its key go together: set EDT_TLS_CERTIFICATE and EDT_TLS_KEY")
        return key

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
