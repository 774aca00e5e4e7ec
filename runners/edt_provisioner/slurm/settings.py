"""The EDT_SLURM_* settings, beside those of all provisioners."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from edt_provisioner.settings import Place, PoolName, Seconds, Settings, needs

SLURM_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
"""Names of users that are handed to sudo and to Slurm."""
_NAMES = r"^[A-Za-z0-9_.-]+(,[A-Za-z0-9_.-]+)*$"
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_OWN_OPTIONS = re.compile(
    r"--(array|nodes|ntasks|job-name|output|error|export|parsable|partition|account|qos|constraint|gres|cpus-per-task|mem"
    r"|time|requeue|no-requeue|open-mode|uid|gid|wrap|wait)(=.*)?|-[aNnJoepAqCctW].*"
)
"""What the provisioner gives to sbatch itself."""


def _pairs(given: Any) -> Any:
    """Read ``a=b,c=d``."""
    if not isinstance(given, str):
        return given
    pairs = [each.partition("=") for each in given.split(",") if each.strip()]
    if not all(equals and name.strip() and value.strip() for name, equals, value in pairs):
        raise ValueError(given)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _words(given: Any) -> Any:
    return tuple(shlex.split(given)) if isinstance(given, str) else given


def _seconds(given: Any) -> Any:
    """Read a time limit as sbatch does: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes…]."""
    if not isinstance(given, str):
        return given
    match = _TIME.fullmatch(given.strip())
    if match is None:
        raise ValueError(given)
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:
        numbers.insert(0, 0)  # no hours
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _options(given: tuple[str, ...]) -> tuple[str, ...]:
    for word in given:
        if not word.startswith("-") or _OWN_OPTIONS.fullmatch(word):
            raise ValueError(word)
    return given


def _rest_url(given: str) -> str:
    where = urlsplit(given)
    if (where.scheme == "unix" and not where.path.startswith("/")) or where.scheme not in {"unix", "http", "https"}:
        raise ValueError(given)
    return given.rstrip("/")


Names = Annotated[str, Field(pattern=_NAMES), needs("names with commas between, as low,spare")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$"), needs("one name: letters, digits, '.', '_' and '-'")]
Pairs = Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs), needs("pairs with commas between, as a=b,c=d")]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), needs("a command, quoted as in a shell")]
OneLine = Annotated[str, Field(pattern=r"^[^\s]+$"), needs("one word, as sbatch takes it")]


class SlurmSettings(Settings):
    """The settings of a pool of Slurm's nodes. Each field has the name of a variable in lower case, without EDT_."""

    pool: PoolName = "slurm"
    pool_sync_seconds: Seconds = 5.0
    """Seconds between two looks. Each is one squeue."""
    slurm_partitions: Names | None = None
    """Partitions of the jobs; Slurm takes whichever starts the job first. None: Slurm's default partition."""
    slurm_growth_partitions: Names | None = None
    """Partitions of nodes by which a training only grows. None: the same."""
    slurm_account: Name | None = None
    """Account of the jobs. None: the user's default account."""
    slurm_accounts: Pairs = Field(default_factory=dict)
    """Accounts by queue of the platform, as ``research=acct1,research/vision=acct2``; the longest path counts. Only
    where nodes are asked for by job."""
    slurm_qos: Name | None = None
    slurm_growth_qos: Name | None = None
    """QOS of nodes by which a training only grows. None: the same."""
    slurm_constraint: OneLine | None = None
    """Features that nodes must have, as sbatch's ``--constraint``."""
    slurm_gres: OneLine | None = None
    """Generic resources of each node, as ``gpu:a100:4``; as many GPUs as EDT_POOL_SLOTS."""
    slurm_cpus: Annotated[int, Field(ge=1, le=4096), needs("a whole number from 1 to 4096")] | None = None
    """CPUs of each node's job. None: one for each slot."""
    slurm_memory: Annotated[str, Field(pattern=r"^\d+[KMGT]?$"), needs("a size such as 16G")] | None = None
    """Memory of each node's job. None: the partition's default."""
    slurm_time_limit: (
        Annotated[
            int, Field(ge=60), BeforeValidator(_seconds), needs("a time of at least a minute, as 90, 12:00:00 or 2-0")
        ]
        | None
    ) = None
    """Time limit of each node's job, written as for sbatch; kept in seconds. None: the partition's."""
    slurm_grace_seconds: Annotated[float, Field(ge=0, lt=86_400), needs("a number of seconds from 0")] | None = None
    """Seconds that a preempted job has. 0: none. None: the partition's GraceTime, or where it has none, KillWait."""
    slurm_options: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(_words),
        AfterValidator(_options),
        needs("options of sbatch written --name=value, without those that have a setting of their own"),
    ] = ()
    """Further options of sbatch, as ``--reservation=edt --nice=100``."""
    slurm_srun_options: Words = ()
    """Further options of srun, which starts the agent in the job."""
    slurm_prologue: Place | None = None
    """File of bash that each job reads before the agent starts, as ``module load cuda``."""
    slurm_python: Annotated[str, Field(pattern="^/"), needs("the path of a Python, from / on")] = sys.executable
    """Python with OpenEDT, at the same path on all nodes."""
    slurm_users: Pairs = Field(default_factory=dict)
    """Users of Slurm by user of the platform, as ``alice=asmith``. One who is not named has the same name in both."""
    slurm_rest: Annotated[str, AfterValidator(_rest_url), needs("unix:/path, http://… or https://…")] | None = None
    """Where slurmrestd listens, for ``jwt``."""
    slurm_token_command: Words = ("scontrol", "token", "username={user}", "lifespan=600")
    """Command that prints a token of ``{user}``, alone or as ``SLURM_JWT=…``, good for ten minutes or more."""
    slurm_timeout_seconds: Seconds = 20.0
    """Seconds after which a command of Slurm's that does not end counts as Slurm being away."""

    slurm_as_user: Literal["no", "sudo", "jwt"] = Field(default="no", validate_default=True)
    """Whose jobs they are: the provisioner's user (``no``), or the owner of the training, by ``sudo -u`` or by
    slurmrestd with a JSON web token of that user."""

    @field_validator("slurm_as_user")
    @classmethod
    def _fits(cls, given: str, info: ValidationInfo) -> str:
        has = info.data
        if given == "jwt" and has.get("slurm_rest") is None:
            raise _unfit("jwt only where EDT_SLURM_REST says where slurmrestd listens")
        if given == "jwt" and has.get("slurm_options"):
            raise _unfit("no or sudo where there are EDT_SLURM_OPTIONS, which are sbatch's")
        if given == "jwt" and os.geteuid() != 0 and not _may_give_files():
            raise _unfit("jwt only as root or with CAP_CHOWN, since each user gets a file with a token")
        if given == "no" and has.get("slurm_accounts"):
            raise _unfit("sudo or jwt where there are EDT_SLURM_ACCOUNTS, since only a job's own node has a queue")
        if given != "no" and has.get("pool_min_nodes"):
            raise _unfit("no where EDT_POOL_MIN_NODES is not 0, since a node without a job has no user")
        return given

    @property
    def per_job(self) -> bool:
        return self.slurm_as_user != "no"

    @property
    def cpus(self) -> int:
        return self.slurm_cpus or self.pool_slots

    @property
    def folder(self) -> Path:
        """The folder of the pool's own files."""
        return self.home / "pools" / self.pool

    def account(self, queue: str) -> str | None:
        """The account of a queue's jobs."""
        path = queue.split("/")
        for length in range(len(path), 0, -1):
            if found := self.slurm_accounts.get("/".join(path[:length])):
                return found
        return self.slurm_account

    def prologue(self) -> str:
        """What each job does first.

        Raises:
            OSError: the file cannot be read.
        """
        return "" if self.slurm_prologue is None else self.slurm_prologue.read_text()


def own_user() -> str:
    """The name of this process's user."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _unfit(words: str) -> PydanticCustomError:
    return PydanticCustomError("unfit", "{words}", {"words": words})


def _may_give_files() -> bool:
    """Whether this process has CAP_CHOWN."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & 1)
