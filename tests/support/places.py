"""Where supervisors run, for tests that hold both launchers to one contract: processes of this machine, or containers.

A place is a node with the agent and the supervisor that a person would have; containers see the sources of this
checkout, so that nothing has to be built before a test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from edt_agent.launchers.docker.container import LABEL_JOB, LABEL_TAG
from edt_contract.attempt import Assignment
from edt_contract.processes import TAG_VARIABLE
from support.tagged import bearers, kill_bearers, lives
from support.waiting import until

IMAGE, IMAGE_TENSORFLOW = "openedt/runner-torch:test", "openedt/runner-tensorflow:test"
"""Made by ``make system-deps``."""
ROOT = Path(__file__).parents[2]
_INSIDE = "/opt/openedt/lib/python3.11/site-packages"
_PACKAGES = ("callbacks", "edt_contract", "edt_runner", "emetrics", "fabric_model", "pyedt")
_SOURCES = ",".join(f"{ROOT}/runners/{name}:{_INSIDE}/{name}:ro" for name in _PACKAGES)

TRAINING = """
import os, signal, time
import torch
from torch import nn
from torch.utils.data import TensorDataset
from fabric_model import FabricModel

def asked(what):
    try:
        os.unlink(what)
    except FileNotFoundError:
        return False
    return True

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64))

    def forward(self, indices):
        time.sleep(0.02)
        if asked("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        eaten = []
        while eaten or asked("eat"):
            eaten.append(bytearray(b"x") * (1 << 24))
        return self.weight[indices]

numbers = torch.arange(64)
model = Slow()
FabricModel(
    model, lambda: (TensorDataset(numbers, numbers), None), lambda out, target: -out.mean(),
    torch.optim.SGD(model.parameters(), lr=1.0),
).train(int(os.environ.get("EPOCHS", "1000")), 2, 2, checkpoint_freq=0)
"""


class Place:
    """One node whose agent starts supervisors in its own way. ``kind``: ``process`` or ``docker``."""

    def __init__(self, kind: str, node: Any, **environ: str) -> None:
        self.kind, self.node, self.api = kind, node, node.api
        self._environ = environ

    def start(self, module: str = "edt_agent", **environ: str) -> None:
        """The agent, as ``edt agent`` starts it, or another ``module`` that starts it."""
        node = self.node
        settings = {TAG_VARIABLE: node.tag, "EDT_AGENT_POLL_SECONDS": "1", "EDT_CPU_SLOTS": "2", "EDT_DEVICES": "cpu"}
        settings |= {"EDT_LAUNCHER": self.kind, "EDT_WARM": "0", "EDT_PASSWORD": "a secret of the agent's"}
        if self.kind == "docker":
            settings |= {"EDT_DOCKER_IMAGE_PYTORCH": IMAGE, "EDT_DOCKER_IMAGE_TENSORFLOW": IMAGE_TENSORFLOW}
            settings |= {"EDT_DOCKER_MOUNTS": _SOURCES, "EDT_DOCKER_PULL": "never"}
        words = ["--api", node.api.url, "--home", str(node.home), "--name", node.name]
        with (node.home / "agent.out").open("ab") as output:
            node.agent = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env={**os.environ, **settings, **self._environ, **environ},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def job(self, job: str, script: str = TRAINING, **given: Any) -> Assignment:
        """List an attempt of ``script``; a second call changes its desired."""
        assignment: Assignment = self.node.assignment(job=job, **{"grace_seconds": 10, **given})
        folder = Path(assignment.spec.work_dir)
        folder.joinpath("main.py").write_text(script)
        for name in ("log", "checkpoint", "model"):
            folder.joinpath(name).mkdir(exist_ok=True)
        self.api.want(assignment)
        return assignment

    def folder(self, job: str) -> Path:
        return Path(self.node.home) / "jobs" / job

    def reaches(self, job: str, kind: str, times: int = 1, fence: int = 1, seconds: float = 90) -> Any:
        """Wait until a report has come so often; the newest one's body."""
        key = f"{job}/{fence}"
        until(lambda: self.api.kinds(key).count(kind) >= times, seconds, f"{times} {kind} of {key}: {self.node.log}")
        return self.api.last(key, kind)

    def ends(self, job: str, seconds: float = 90) -> Any:
        """Wait for the last word of its attempt, and until nothing of it is left; that word's body."""
        body = self.reaches(job, "attempt-ended", seconds=seconds)
        until(lambda: not self.left_of(job), 30, what=f"nothing is left of {job}")
        return body

    def left_of(self, job: str) -> list[str]:
        """Processes and containers of it, running or not."""
        own = [f"{pid} {name}" for pid, name in self.processes(job).items()]
        return own + [container["Id"] for container in self.containers(job)]

    def processes(self, job: str) -> dict[int, str]:
        """pid, as this machine counts, to name of everything that runs of it."""
        pids: set[int] = set()
        if self.kind == "docker":
            for container in self.containers(job):
                top = docker("top", container["Id"], "-eo", "pid", check=False)
                pids |= {int(line) for line in top.splitlines()[1:]}
        else:
            for path in (self.node.home / "agent" / self.node.name / "attempts").glob(f"{job}.*.json"):
                with suppress(FileNotFoundError):  # the agent has just forgotten it, since nothing of it is left
                    pids |= set(bearers(self.node.tag, EDT_LIFE=json.loads(path.read_text())["life"]))
        return {pid: _name(pid) for pid in pids if lives(pid)}

    def engines(self, job: str) -> int:
        """How many run."""
        return list(self.processes(job).values()).count("edt-engine")

    def supervisor(self, job: str) -> int:
        """Its pid, as this machine counts."""
        parents = {pid: _parent(pid) for pid in self.processes(job)}
        [pid] = [pid for pid, parent in parents.items() if parent not in {None, *parents}]  # a fork bears its name, too
        return pid

    def containers(self, job: str | None = None) -> list[dict[str, Any]]:
        """As ``docker inspect`` shows them; none where supervisors are processes."""
        if self.kind != "docker":
            return []
        wanted = [f"label={LABEL_TAG}={self.node.tag}", *([f"label={LABEL_JOB}={job}"] if job else [])]
        ids = docker("ps", "-aq", *(word for each in wanted for word in ("--filter", each))).split()
        text = docker("inspect", *ids, check=False) if ids else "[]"
        found: list[dict[str, Any]] = json.loads(text or "[]")
        return found

    def kill_agent(self) -> None:
        self.node.signal(signal.SIGKILL)

    def close(self) -> None:
        """End everything, whatever a test has left."""
        agent = self.node.agent
        if agent is not None and agent.poll() is None:
            agent.kill()
            agent.wait()
        kill_bearers(self.node.tag)
        for container in self.containers():
            docker("rm", "-f", container["Id"], check=False)


def docker(*words: str, check: bool = True) -> str:
    return subprocess.run(["docker", *words], check=check, capture_output=True, text=True, timeout=120).stdout


def has_docker() -> bool:
    try:
        return subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _parent(pid: int) -> int | None:
    """None: it has ended meanwhile."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text[text.rindex(")") + 2 :].split()[1])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
