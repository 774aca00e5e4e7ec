"""What the front door is told from outside: EDT_ variables, those of the scheduler's room among them. Room: api."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from edt_api.archives import LIMITS
from edt_scheduler import settings as scheduler


class Settings(scheduler.Settings):
    """Everything the API can be told. Each name is the environment's without EDT_, in small letters."""

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
    token_hours: float = Field(default=12.0, gt=0)
    """How long a token from ``GET /auth/v1/logon`` holds."""
    forwarded_allow_ips: str = ""
    """Addresses of proxies whose X-Forwarded-For, -Proto and -Host are believed; empty: nobody's are."""

    @property
    def join_token_file(self) -> Path:
        return self.home / "join-token"
