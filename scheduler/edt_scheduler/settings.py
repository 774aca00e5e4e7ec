"""The scheduler's settings: environment variables with the prefix EDT_.

Reads the environment once, when ``Settings()`` is made, and the files that it names; creates nothing. A secret in a
file (EDT_<NAME>_FILE) does not show in ``docker inspect``, in ``ps`` or in a child's environment.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from edt_scheduler.model.images import OURS

SOCKET_BYTES = 100
"""Longest path of a unix socket we use; the kernel takes 107."""


def default_home() -> Path:
    """``edt`` in the XDG data directory."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "edt"


MOST_DAYS = 36_500.0


def _empty_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Days = Annotated[
    Annotated[float, Field(gt=0, le=MOST_DAYS, allow_inf_nan=False)] | None, BeforeValidator(_empty_is_none)
]
"""For how many days something is kept; None, or empty: for ever."""


@dataclass(frozen=True)
class SecretFile:
    """A setting's value that is still in its file."""

    path: Path

    def read(self) -> str:
        """What it holds, without the line end. Raises ValueError with the sentence that says what is wrong."""
        try:
            text = self.path.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(f"its file {self.path} cannot be read: {reason}") from None
        if not text:
            raise ValueError(f"its file {self.path} is empty")
        return text


class SecretFiles(PydanticBaseSettingsSource):
    """The source of such settings: a SecretFile for every EDT_<NAME>_FILE that is set."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = f"{self.config.get('env_prefix', '')}{field_name}_file".upper()
        path = os.environ.get(variable)
        return (SecretFile(Path(path)) if path else None), field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def with_password(url: str, password: str) -> str:
    """The URL with the password in the place where a URL has one."""
    parts = urlsplit(url)
    names, _, place = parts.netloc.rpartition("@")
    user = names.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))


class Settings(BaseSettings):
    """All settings. Each name is the environment's without EDT_, in small specs; with _FILE
    behind it, the value is what that file holds."""

    model_config = SettingsConfigDict(env_prefix="EDT_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=default_home)
    """State: ``home-id``, ``secret-key``, ``edt.db``, ``jobs/``, ``lost+found/``, ``staged/``, ``run/``. All nodes of
    the cluster see the same folder."""
    database_password: SecretStr | None = None
    """Put into ``database_url``, so that the one can be a secret and the other be shown."""
    database_url: str = ""
    """Default: SQLite in the home. ``postgresql://…`` in production."""
    broker_password: SecretStr | None = None
    """Put into ``broker_url`` and ``nodes_broker_url``."""
    broker_url: str = ""
    """Redis or Valkey, ``redis+socket://…`` too. Empty: no notifications, every loop has its timer."""
    nodes_broker_url: str | None = None
    """The broker as nodes reach it, where that is another address; empty: they are told of none."""
    tick_seconds: float = Field(default=1.0, gt=0)
    """How often the scheduler looks unasked."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A node that is silent for longer is lost."""
    grace_seconds: float = Field(default=30.0, gt=0, le=600)
    """Least time a leave is given before SIGKILL."""
    alive_file: Path | None = None
    """Touched whenever the scheduler has looked or stands by; how old it is tells whether the scheduler works."""
    job_days: Days = None
    """A job that has been over for so long is deleted, with its results. Empty, the default: never."""
    result_days: Days = None
    """Folders (results, checkpoints, logs) of jobs that have been over for so long are removed; what is in the database
    stays. Empty, the default: as long as the job."""
    deleted_days: float = Field(default=1.0, ge=1, le=MOST_DAYS)
    """So long after a job was deleted its rows go. An Idempotency-Key may name it for a day, therefore never sooner."""
    metrics_days: Days = Field(default=30.0)
    """Curves of jobs that have been over for so long are thinned out. Empty: never."""
    metrics_points: int = Field(default=500, ge=8)
    """So many points are left of a curve that was thinned out."""
    usage_days: float = Field(default=2.0, gt=0, le=MOST_DAYS)
    """How long each sample is kept of how busy slots were."""
    usage_users_days: Days = None
    """How long it is kept for how long each user's jobs held slots, by the day. Empty, the default: for ever."""
    secret_key_file: Path | None = None
    """Holds the keys under which environments of jobs are sealed, a key a line, newest first; default ``secret-key`` in
    the home. All APIs and schedulers see the same."""
    images: str = OURS
    """Patterns of container images that every job may name, commas between; ``*`` for all. Besides these, those that an
    admin has allowed or used."""
    data_fs: Path | None = None
    """DLI_DATA_FS of the jobs; default ``data`` in the home."""
    tf_use_legacy_keras: bool = False
    """TensorFlow jobs get TF_USE_LEGACY_KERAS=1, Keras 2, where they do not say otherwise; read at a job's submit."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What a caller says, then EDT_<NAME>, then EDT_<NAME>_FILE."""
        return init_settings, env_settings, SecretFiles(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        return value.read() if isinstance(value, SecretFile) else value

    @field_validator("database_url", "broker_url", "nodes_broker_url", mode="after")
    @classmethod
    def _whole(cls, url: str | None, info: ValidationInfo) -> str | None:
        password = info.data.get("database_password" if info.field_name == "database_url" else "broker_password")
        return with_password(url, password.get_secret_value()) if url and password else url

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("result_days", mode="after")
    @classmethod
    def _not_beyond_the_job(cls, days: float | None, info: ValidationInfo) -> float | None:
        job_days = info.data.get("job_days")
        if days is not None and job_days is not None and days > job_days:
            raise ValueError(
                f"results go with their job at the latest: got {days:g} days, and EDT_JOB_DAYS is {job_days:g}; "
                "take as many or fewer, or leave it empty"
            )
        return days

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'edt.db'}"

    @property
    def nodes_broker(self) -> str | None:
        """Where nodes are told to listen for notifications."""
        return (self.broker_url if self.nodes_broker_url is None else self.nodes_broker_url) or None

    @property
    def jobs(self) -> Path:
        """One folder a job: its code, logs, checkpoints, results."""
        return self.home / "jobs"

    @property
    def staged(self) -> Path:
        """Uploads that no job row knows yet; on the same file system as ``jobs``, so that a rename moves them."""
        return self.home / "staged"

    @property
    def lost_found(self) -> Path:
        """Job folders that no row knows; beside ``jobs``, so that a rename moves them."""
        return self.home / "lost+found"

    @property
    def data(self) -> Path:
        return self.data_fs or self.home / "data"

    def job_directory(self, exec_id: str) -> Path:
        return self.jobs / exec_id

    def checkpoint_directory(self, exec_id: str) -> Path:
        return self.job_directory(exec_id) / "checkpoint"

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


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong with these settings, in one sentence. The value is left out: it may be a secret."""
    first = error.errors(include_input=False)[0]
    return f"EDT_{str(first['loc'][0]).upper()}: {first['msg'].removeprefix('Value error, ')}"
