"""Slurm by its commands: sbatch, squeue, scancel, scontrol. SLURM_CONF says which cluster, as everywhere."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edt_provisioner.cluster import ClusterAway
from edt_provisioner.slurm.batches import Batch
from edt_provisioner.slurm.script import Submission, sbatch_options
from edt_provisioner.slurm.settings import SlurmSettings, own_user
from edt_provisioner.slurm.states import FORMAT, Task, read_squeue

_AWAY = re.compile(
    r"unable to contact|timed out|connection refused|communication|connect failure|standby|configuration source"
    r"|zero bytes|socket|slurmctld|not responding|munge|protocol authentication",
    re.IGNORECASE,
)
"""What Slurm's commands say when slurmctld or munge does not answer, which is no answer about the job."""
_PASSED_ON = frozenset({"SLURM_CONF", "PATH", "LANG", "HOME", "USER", "LOGNAME", "KRB5CCNAME"})
"""What Slurm's commands see of the provisioner's environment."""


def passed_on() -> dict[str, str]:
    """The environment of Slurm's commands."""
    return {name: value for name, value in os.environ.items() if name in _PASSED_ON}


class Refused(Exception):
    """Slurm refuses a request. The message is Slurm's."""


class Lost(ClusterAway):
    """Slurm was asked for jobs and did not answer in time: they may be there or come, or not."""


@dataclass(frozen=True)
class Grace:
    """How long Slurm lets jobs live after the first signal, in seconds; None: unknown."""

    partition: float | None
    """The shortest GraceTime of the partitions."""
    kill_wait: float | None


class Slurm(Protocol):
    """How Slurm is asked. Each may raise ClusterAway."""

    def tasks(self, prefix: str, batches: Sequence[Batch]) -> list[Task]:
        """All jobs that Slurm knows whose names begin so."""

    def submit(self, asked: Submission) -> str:
        """Ask for an array; returns its number.

        Raises:
            Refused: Slurm refuses it.
            Lost: nobody knows whether Slurm takes it.
        """

    def cancel(self, user: str | None, tasks: Sequence[Task]) -> None:
        """Cancel jobs of one user's. Those that have ended are left as they are."""

    def grace(self) -> Grace:
        """How long jobs live after a signal."""

    def close(self) -> None: ...


class Commands:
    """Slurm by its commands, as this process's user or, by sudo, as another."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._environ = passed_on()

    def tasks(self, prefix: str, batches: Sequence[Batch]) -> list[Task]:
        # Of one user slurmctld sends only that user's jobs.
        users = {batch.user or own_user() for batch in batches}
        if not users:
            return []
        words = ["squeue", "--noheader", "--all", "--array", "--states=all", f"--user={','.join(sorted(users))}"]
        return [task for task in read_squeue(self._ask([*words, f"--format={FORMAT}"])) if task.name.startswith(prefix)]

    def submit(self, asked: Submission) -> str:
        words = ["sbatch", *sbatch_options(asked, self._settings)]
        try:
            return self._run(words, asked.kind.user, asked.script).strip().partition(";")[0]
        except subprocess.TimeoutExpired as error:
            raise Lost(_late(error)) from error

    def cancel(self, user: str | None, tasks: Sequence[Task]) -> None:
        for start in range(0, len(tasks), 100):
            some = tasks[start : start + 100]
            self._run(["scancel", *(f"{task.array}_{task.index}" for task in some)], user)

    def grace(self) -> Grace:
        config = self._ask(["scontrol", "show", "config"])
        wait = re.search(r"^KillWait\s*=\s*(\d+)", config, re.MULTILINE)
        named = set()
        for names in (self._settings.slurm_partitions, self._settings.slurm_growth_partitions):
            named |= set(names.split(",")) if names else set()
        graces = []
        for line in self._ask(["scontrol", "--all", "--oneliner", "show", "partition"]).splitlines():
            facts = dict(word.partition("=")[::2] for word in line.split())
            chosen = facts.get("PartitionName") in named if named else facts.get("Default") == "YES"
            if chosen and facts.get("PreemptMode") != "OFF" and facts.get("GraceTime", "").isdigit():
                graces.append(float(facts["GraceTime"]))
        return Grace(min(graces, default=None), float(wait[1]) if wait else None)

    def close(self) -> None:
        """Nothing to close."""

    def _ask(self, words: Sequence[str]) -> str:
        """Run a command that only asks. Without an answer nothing is known, whatever the reason."""
        try:
            return self._run(words)
        except Refused as error:
            raise ClusterAway(str(error)) from error

    def _run(self, words: Sequence[str], user: str | None = None, stdin: str = "") -> str:
        """Run a command of Slurm's; returns what it printed.

        Raises:
            ClusterAway: slurmctld does not answer.
            Refused: it does, and refuses.
            subprocess.TimeoutExpired: the answer of sbatch did not come in time.
        """
        command = list(words)
        if user is not None:
            kept = [f"--preserve-env={name}" for name in ("SLURM_CONF",) if name in self._environ]
            command = ["sudo", "-n", *kept, "-u", user, *words]
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                env=self._environ,
                cwd="/",
                timeout=self._settings.slurm_timeout_seconds,
                check=False,
            )
        except FileNotFoundError as error:
            raise ClusterAway(f"{error.filename} is not installed on this machine") from error
        except subprocess.TimeoutExpired as error:
            if words[0] == "sbatch":
                raise
            raise ClusterAway(_late(error)) from error
        if done.returncode == 0:
            return done.stdout
        said = _message(done.stderr) or f"{words[0]} ended with status {done.returncode}"
        if _AWAY.search(done.stderr):
            raise ClusterAway(said)
        raise Refused(said)


def _message(stderr: str) -> str:
    """What a command says, in one line and without its own name."""
    lines = [re.sub(r"^(\w+: )?(error|fatal): ", "", line.strip()) for line in stderr.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[-500:]


def _late(error: subprocess.TimeoutExpired) -> str:
    words = [word for word in error.cmd if word not in {"sudo", "-n"}]
    return f"{words[0]} did not end within {error.timeout:g} s"
