"""What the scheduler's room is told from outside: environment variables with the prefix EDT_. Room: scheduler.

Reads the environment once, when ``Settings()`` is made; creates nothing.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SOCKET_BYTES = 100
"""Longest path of a unix socket we use; the kernel takes 107."""


def default_home() -> Path:
    """``edt`` in the XDG data directory."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "edt"


class Settings(BaseSettings):
    """Everything this room can be told. Each name is the environment's without EDT_, in small letters."""

    model_config = SettingsConfigDict(env_prefix="EDT_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=default_home)
    """State: ``edt.db``, ``jobs/``, ``staged/``, ``run/``. All nodes of the cluster see the same folder."""
    database_url: str = ""
    """Default: SQLite in the home. ``postgresql://…`` in production."""
    broker_url: str = ""
    """Redis or Valkey, ``redis+socket://…`` too. Empty: no doorbells, every loop has its timer."""
    tick_seconds: float = Field(default=1.0, gt=0)
    """How often the scheduler looks unasked."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A node that is silent for longer is lost."""
    grace_seconds: float = Field(default=30.0, gt=0, le=600)
    """Least time a leave is given before SIGKILL."""
    data_fs: Path | None = None
    """DLI_DATA_FS of the jobs; default ``data`` in the home."""

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'edt.db'}"

    @property
    def jobs(self) -> Path:
        """One folder a job: its code, logs, checkpoints, results."""
        return self.home / "jobs"

    @property
    def staged(self) -> Path:
        """Uploads that no job row knows yet; on the same file system as ``jobs``, so that a rename moves them."""
        return self.home / "staged"

    @property
    def data(self) -> Path:
        return self.data_fs or self.home / "data"

    def job_directory(self, exec_id: str) -> Path:
        return self.jobs / exec_id

    def socket(self, spool: Path, exec_id: str, fence: int, node: str) -> Path:
        """Where a supervisor listens: in its spool, or in a short folder where that path would be too long.

        The short folder is named after the home, so that two homes of one machine keep apart. Whoever starts
        the supervisor makes the folder, mode 0700, and refuses one that belongs to another user.
        """
        path = spool / "supervisor.sock"
        if len(os.fsencode(path)) < SOCKET_BYTES:
            return path
        home = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]
        name = hashlib.sha256(f"{exec_id}/{fence}/{node}".encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"edt-{os.getuid()}-{home}" / f"{name}.sock"
