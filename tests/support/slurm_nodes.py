"""Nodes of a pool in a real Slurm, with a program in the agent's place that writes down what it is given."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from edt_contract.pools import NodeRequest, NodeState
from edt_provisioner.settings import read_settings
from edt_provisioner.slurm import SlurmCluster, SlurmSettings, connect
from support.slurm_cluster import SlurmOnThisMachine
from support.waiting import until

JOIN_TOKEN = "join-token-of-the-test"
_PROGRAM = """\
#!/bin/bash
record={folder}/$EDT_NAME
env > "$record.environ"
cat "$EDT_TOKEN_FILE" > "$record.token"
trap 'echo $(date +%s.%N) >> "$record.terms"; [ ! -e "$record.leaves" ] || exit 0' TERM
echo "$SLURM_JOB_ID $SLURM_RESTART_COUNT" >> "$record.starts"
while [ ! -e "$record.ends" ]; do sleep 0.05; : > "$record.alive"; done
exit "$(cat "$record.ends")"
"""


class SlurmNodes:
    """A pool over a Slurm of a test's own.

    Args:
        slurm: the Slurm.
        folder: a folder that all users may enter.
        environ: EDT_* settings.
    """

    def __init__(self, slurm: SlurmOnThisMachine, folder: Path, **environ: str) -> None:
        self.slurm, self.home, self.records = slurm, folder / "home", folder / "records"
        self.home.mkdir(exist_ok=True)
        self.records.mkdir(exist_ok=True)
        self.records.chmod(0o777)
        (self.home / "join-token").write_text(JOIN_TOKEN + "\n")
        program = folder / "program"
        program.write_text(_PROGRAM.format(folder=self.records))
        program.chmod(0o755)
        self.environ = {
            "SLURM_CONF": str(slurm.conf),
            "EDT_HOME": str(self.home),
            "EDT_POOL_SYNC_SECONDS": "0.5",
            "EDT_SLURM_PYTHON": str(program),
            "EDT_SLURM_PARTITIONS": "low",
            "EDT_SLURM_TIMEOUT_SECONDS": "5",
            **environ,
        }
        self.cluster = self.open()

    def open(self) -> SlurmCluster:
        """The pool, as a provisioner that is started now has it."""
        with self._environment():
            settings = read_settings(SlurmSettings, {})
            return SlurmCluster(settings, connect(settings))

    def reopen(self) -> None:
        self.cluster.close()
        self.cluster = self.open()

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        before = dict(os.environ)
        for name in before:
            if name.startswith(("EDT_", "SLURM_", "SBATCH_")):
                del os.environ[name]
        os.environ.update(self.environ)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def create(self, *names: str, user: str | None = None, job: str | None = None) -> list[NodeState]:
        return self.cluster.create([NodeRequest(name, slots=1, job=job, user=user) for name in names])

    def states(self) -> dict[str, NodeState]:
        return {state.node: state for state in self.cluster.nodes()}

    def state(self, name: str) -> str:
        """A node's state; "": Slurm has no such node."""
        found = self.states().get(name)
        return found.state if found else ""

    def until_state(self, name: str, state: str, seconds: float = 30.0) -> NodeState:
        until(lambda: self.state(name) == state, seconds, f"{name} is {state}, and not {self.states().get(name)}")
        return self.states()[name]

    def until_started(self, name: str, times: int = 1, seconds: float = 30.0) -> list[str]:
        """Wait until a node's program has been started so often; returns a line for each start."""
        path = self.records / f"{name}.starts"
        until(lambda: path.exists() and len(path.read_text().splitlines()) >= times, seconds, f"{name} starts")
        return path.read_text().splitlines()

    def environment_of(self, name: str) -> dict[str, str]:
        lines = (self.records / f"{name}.environ").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines if "=" in line)

    def terms(self, name: str) -> list[float]:
        """When a node's program got SIGTERM."""
        path = self.records / f"{name}.terms"
        return [float(line) for line in path.read_text().split()] if path.exists() else []

    def alive_until(self, name: str) -> float:
        """When a node's program was seen alive last."""
        return (self.records / f"{name}.alive").stat().st_mtime

    def leaves_at_term(self, name: str) -> None:
        (self.records / f"{name}.leaves").touch()

    def ends_with(self, name: str, status: int) -> None:
        """Let a node's program end."""
        draft = self.records / f"{name}.draft"
        draft.write_text(str(status))
        draft.rename(self.records / f"{name}.ends")

    def tokens(self) -> list[Path]:
        return sorted(self.home.glob("pools/*/*/*.token"))

    def jobs(self) -> list[str]:
        """Number of each job that is not over, as ``array_index``."""
        return self.slurm.run("squeue", "--noheader", "--array", "--format=%F_%K").split()

    def clear(self) -> None:
        """End all."""
        self.slurm.drop_all_jobs()
        self.cluster.close()


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))
