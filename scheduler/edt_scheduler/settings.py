"""The scheduler's settings: environment variables with the prefix EDT_.

``Settings()`` reads the environment once, when it is made, and the files that the environment names. It creates
nothing. A secret that is stored in a file (EDT_<NAME>_FILE) does not show in ``docker inspect``, in ``ps`` or in a
child's environment.
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
"""Length in bytes from which a unix socket's path counts as too long here. The kernel takes 107 bytes."""


def default_home() -> Path:
    """The folder ``edt`` in the XDG data directory."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "edt"


MOST_DAYS = 36_500.0


def _empty_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Days = Annotated[
    Annotated[float, Field(gt=0, le=MOST_DAYS, allow_inf_nan=False)] | None, BeforeValidator(_empty_is_none)
]
"""For how many days something is kept; None, or an empty value: for ever."""


@dataclass(frozen=True)
class SecretFile:
    """The file that holds a setting's value, not read yet."""

    path: Path

    def read(self) -> str:
        """The file's text without the line end.

        Raises:
            ValueError: The file cannot be read or is empty. The message says which.
        """
        try:
            text = self.path.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(f"its file {self.path} cannot be read: {reason}") from None
        if not text:
            raise ValueError(f"its file {self.path} is empty")
        return text


class SecretFiles(PydanticBaseSettingsSource):
    """A source of settings that gives a SecretFile for every EDT_<NAME>_FILE that is set."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = f"{self.config.get('env_prefix', '')}{field_name}_file".upper()
        path = os.environ.get(variable)
        return (SecretFile(Path(path)) if path else None), field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def with_password(url: str, password: str) -> str:
    """The URL with this password in the place that a URL has for it."""
    parts = urlsplit(url)
    names, _, place = parts.netloc.rpartition("@")
    user = names.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))


class Settings(BaseSettings):
    """All settings. The environment variable of a setting is EDT_ and its name in capitals. With _FILE at its end, the
    variable names a file that holds the value.
    """

    model_config = SettingsConfigDict(env_prefix="EDT_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=default_home)
    """The platform's state: ``home-id``, ``secret-key``, ``edt.db``, ``jobs/``, ``lost+found/``, ``staged/``, ``run/``.

    All nodes of the cluster see the same folder.
    """
    database_password: SecretStr | None = None
    """Put into ``database_url``. So the password can be kept secret while the URL is shown."""
    database_url: str = ""
    """Default: SQLite in the home. In production: ``postgresql://…``."""
    broker_password: SecretStr | None = None
    """Put into ``broker_url`` and ``nodes_broker_url``."""
    broker_url: str = ""
    """Redis or Valkey, also as ``redis+socket://…``. Empty: no notifications are sent, and every loop has its timer."""
    nodes_broker_url: str | None = None
    """The broker's address for nodes. None: ``broker_url``. Empty: nodes get no broker."""
    tick_seconds: float = Field(default=1.0, gt=0)
    """Seconds between two looks of the scheduler when nothing wakes it."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A node that is silent for longer than this many seconds is lost."""
    grace_seconds: float = Field(default=30.0, gt=0, le=600)
    """The least time in seconds that engines get to leave, or a job's processes to stop, before SIGKILL."""
    alive_file: Path | None = None
    """The scheduler touches this file each time it has looked, and while it waits for another scheduler to end. The
    file's age shows whether the scheduler works.
    """
    job_days: Days = None
    """How many days after its end a job is deleted, with its results. Empty, the default: never."""
    result_days: Days = None
    """How many days after a job's end its folder (results, checkpoints, logs) is removed.

    The job's rows in the database stay. Empty, the default: the folder stays as long as the job.
    """
    deleted_days: float = Field(default=1.0, ge=1, le=MOST_DAYS)
    """How many days after a job's deletion its rows are deleted. At least 1: an Idempotency-Key may name the job for a
    day.
    """
    metrics_days: Days = Field(default=30.0)
    """How many days after a job's end its metrics are thinned out. Empty: never."""
    metrics_points: int = Field(default=500, ge=8)
    """How many points are left of metrics that were thinned out."""
    usage_days: float = Field(default=2.0, gt=0, le=MOST_DAYS)
    """For how many days each sample of the use of slots is kept."""
    measured_speeds: bool = True
    """Whether slots go by how fast jobs were measured to train. Else a tenth of each step is taken to be serial."""
    usage_half_life_hours: float = Field(default=24.0, gt=0, le=24 * MOST_DAYS, allow_inf_nan=False)
    """In how many hours the slot-seconds that a user has had in a queue come to count half as much."""
    decisions_hours: float = Field(default=48.0, gt=0, le=24 * MOST_DAYS)
    """For how many hours each recorded decision is kept."""
    decisions_megabytes: float = Field(default=256.0, gt=0)
    """How many megabytes the records of decisions may take together; the oldest go first."""
    usage_users_days: Days = None
    """For how many days the daily slot time of each user is kept. Empty, the default: for ever."""
    secret_key_file: Path | None = None
    """The file with the keys that seal the environments of jobs, one key per line, newest first.

    Default: ``secret-key`` in the home. All APIs and schedulers see the same file.
    """
    images: str = OURS
    """Patterns of container images that every job may name, separated by commas; ``*`` for all images.

    Jobs may also name the images that an admin has allowed or used.
    """
    data_fs: Path | None = None
    """DLI_DATA_FS of the jobs. Default: ``data`` in the home."""
    tf_use_legacy_keras: bool = False
    """Whether TensorFlow jobs get TF_USE_LEGACY_KERAS=1 (Keras 2), unless they set the variable. Read when a job is
    submitted.
    """

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of the sources: the caller's arguments, then EDT_<NAME>, then EDT_<NAME>_FILE."""
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
        """The database's URL: ``database_url``, or SQLite in the home."""
        return self.database_url or f"sqlite:///{self.home / 'edt.db'}"

    @property
    def nodes_broker(self) -> str | None:
        """The URL at which nodes listen for notifications; None: they get no broker."""
        return (self.broker_url if self.nodes_broker_url is None else self.nodes_broker_url) or None

    @property
    def jobs(self) -> Path:
        """The folder of the jobs' folders. A job's folder holds its code, logs, checkpoints and results."""
        return self.home / "jobs"

    @property
    def staged(self) -> Path:
        """Uploads that no job row names yet. It is on the same file system as ``jobs``, so that a rename moves an
        upload.
        """
        return self.home / "staged"

    @property
    def lost_found(self) -> Path:
        """Job folders that no row names. It is beside ``jobs``, so that a rename moves a folder."""
        return self.home / "lost+found"

    @property
    def data(self) -> Path:
        return self.data_fs or self.home / "data"

    def job_directory(self, exec_id: str) -> Path:
        return self.jobs / exec_id

    def checkpoint_directory(self, exec_id: str) -> Path:
        return self.job_directory(exec_id) / "checkpoint"

    def socket(self, spool: Path, exec_id: str, fence: int, node: str) -> Path:
        """The path of the socket on which a supervisor listens.

        The socket is in the supervisor's spool, or in a short folder if that path would be too long. The short folder
        is named after the home, so that two homes on one machine use different folders. The process that starts the
        supervisor makes this folder with mode 0700, and refuses a folder that belongs to another user.
        """
        path = spool / "supervisor.sock"
        if len(os.fsencode(path)) < SOCKET_BYTES:
            return path
        home = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]
        name = hashlib.sha256(f"{exec_id}/{fence}/{node}".encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"edt-{os.getuid()}-{home}" / f"{name}.sock"


def complaint(error: ValidationError) -> str:
    """The first fault of these settings in one sentence. The value is left out, because it may be a secret."""
    first = error.errors(include_input=False)[0]
    return f"EDT_{str(first['loc'][0]).upper()}: {first['msg'].removeprefix('Value error, ')}"
