"""The cluster of docker-compose.yml, brought up for real, with images that `make system-deps` made.

Its folder, project and marks are always the same for one checkout, so that the next run finds and removes what an
aborted one left behind: containers, jobs' containers, networks, volumes, files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from edt_agent.launchers.docker.container import LABEL_TAG
from edt_agent.settings import home_tag
from support.ports import free_port

ROOT = Path(__file__).parents[2]
EXECS = "/platform/rest/deeplearning/v1/execs"
SLOTS = 2
_UP_SECONDS = 240
_DOWN_SECONDS = 180


class Cluster:
    """Up on enter, down on exit. ``use`` chooses how the machine's agent runs jobs."""

    def __init__(self) -> None:
        self.project = f"edt-test-{hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:8]}"
        self.folder = Path(tempfile.gettempdir()) / self.project  # short: sockets lie below it
        self.home, self.data = self.folder / "home", self.folder / "home" / "data"
        self.api = httpx.Client(timeout=30, trust_env=False)

    def __enter__(self) -> Cluster:
        self.sweep()
        self.folder.mkdir(mode=0o755)
        port, broker = free_port(), free_port()
        self._configure(
            COMPOSE_PROFILES="docker",  # of those profiles `make secrets` has to know
            COMPOSE_PROJECT_NAME=self.project,
            EDT_HOME=self.home,
            EDT_DATA_FS=self.data,
            EDT_RUNTIME_DIR=self.home / "run",
            EDT_PORT=port,
            EDT_API=f"http://127.0.0.1:{port}",
            EDT_BROKER_PORT=broker,
            EDT_NODES_BROKER_URL=f"redis://127.0.0.1:{broker}/0",
            EDT_POSTGRES_IMAGE="openedt-test/postgres",
            EDT_VALKEY_IMAGE="openedt-test/valkey",
            EDT_API_IMAGE="openedt/api:test",
            EDT_SCHEDULER_IMAGE="openedt/scheduler:test",
            EDT_AGENT_IMAGE="openedt/agent:test",
            EDT_DOCKER_IMAGE_PYTORCH="openedt/runner-torch:test",
            EDT_DOCKER_PULL="never",
            EDT_DOCKER_SHM="64m",
            EDT_CPU_SLOTS=SLOTS,
            EDT_DEVICES="cpu",
            EDT_GRACE_SECONDS=10,
            EDT_HEALTH_INTERVAL="1s",
        )
        run(sys.executable, ROOT / "deploy" / "prepare.py", "--directory", self.folder)
        self.compose("up", "-d", profile="")
        self.api.base_url = f"http://127.0.0.1:{port}"
        self.api.auth = ("admin", self.secret("admin-password"))
        eventually(self.serves, "the API is ready")
        self._log_in()
        return self

    def __exit__(self, *_: object) -> None:
        self.api.close()
        self.sweep()

    def use(self, launcher: str) -> None:
        """Have the machine's jobs run as the agent's own processes, or in containers."""
        self.compose("up", "-d", profile=launcher)
        eventually(lambda: self.nodes() == [("up", launcher)], f"the agent has registered as {launcher}")

    def compose(self, *words: str, profile: str, seconds: float = _UP_SECONDS) -> str:
        """docker-compose with this cluster's .env; ``profile`` instead of what that says."""
        command = ("docker-compose", "--project-directory", self.folder, "-f", ROOT / "docker-compose.yml", *words)
        return run(*command, seconds=seconds, COMPOSE_PROFILES=profile)

    def down(self) -> None:
        """What a person types to end it for good."""
        self.compose("down", "-v", profile="process,docker", seconds=_DOWN_SECONDS)

    def sweep(self) -> None:
        """Remove whatever there is of it, whoever left it."""
        for marks in self.marks():
            eventually(lambda marks=marks: self._removed("container", marks, "-f", "-v"), f"no container has {marks}")
        for kind in ("network", "volume"):
            eventually(lambda kind=kind: self._removed(kind, self.marks()[0]), f"no {kind} is left")
        shutil.rmtree(self.folder, ignore_errors=True)

    def marks(self) -> tuple[str, str]:
        """Labels of what compose made, and of its jobs' containers."""
        return f"com.docker.compose.project={self.project}", f"{LABEL_TAG}={home_tag(self.home)}"

    def left(self, kind: str, label: str) -> list[str]:
        """Ids of what there is of it: containers, networks, volumes."""
        words = ("container", "ls", "-a") if kind == "container" else (kind, "ls")
        return run("docker", *words, "-q", "--filter", f"label={label}").split()

    def _removed(self, kind: str, label: str, *how: str) -> bool:
        """Remove what there is of it; whether there was none. Somebody else may be removing it, too."""
        found = self.left(kind, label)
        if found:
            run("docker", kind, "rm", *how, *found, check=False)
        return not found

    def inspected(self) -> list[dict[str, Any]]:
        """All that `docker inspect` prints of all of its containers. A job's may go while it is asked."""
        found = [name for label in self.marks() for name in self.left("container", label)]
        return list(json.loads(run("docker", "inspect", *found, check=False)))

    def containers(self) -> dict[str, dict[str, Any]]:
        """Those that compose made, by service."""
        service = "com.docker.compose.service"
        return {
            container["Config"]["Labels"][service]: container
            for container in self.inspected()
            if service in container["Config"]["Labels"]
        }

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()

    def submit(self, script: Path, options: str, arguments: str) -> str:
        """POST a script as WMLA's clients do; answers the exec id."""
        args = f"--exec-start edtPyTorch --model-main {script.name} {options} {arguments}"
        archive = self.folder / "model.tar"
        run("tar", "-cf", archive, "-C", script.parent, script.name)
        answer = self.api.post(EXECS, params={"args": args}, files={"file": ("model.tar", archive.read_bytes())})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def job(self, job: str) -> dict[str, Any]:
        answer = self.api.get(f"/api/v1/jobs/{job}")
        answer.raise_for_status()
        return dict(answer.json())

    def resizes(self, job: str) -> list[tuple[int, int]]:
        """All of the job's: from so many slots to so many."""
        answer = self.api.get(f"/api/v1/jobs/{job}/resizes", params={"limit": 500})
        answer.raise_for_status()
        return [(resize["from_slots"], resize["to_slots"]) for resize in answer.json()["items"]]

    def nodes(self) -> list[tuple[str, str]]:
        """Health and launcher of each."""
        answer = self.api.get("/api/v1/nodes")
        answer.raise_for_status()
        return [(node["health"], node["launcher"]) for node in answer.json()["items"]]

    def _configure(self, **settings: object) -> None:
        lines = [(ROOT / ".env.example").read_text(), *(f"{name}={value}" for name, value in settings.items())]
        (self.folder / ".env").write_text("\n".join(lines) + "\n")

    def serves(self) -> bool:
        try:
            return self.api.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def _log_in(self) -> None:
        """A password is made to be slow to check, so it is shown once."""
        answer = self.api.get("/auth/v1/logon")
        answer.raise_for_status()
        self.api.headers["X-Auth-Token"] = str(answer.json()["accessToken"])
        self.api.auth = None


def run(*command: str | Path, seconds: float = 120, cwd: Path = ROOT, check: bool = True, **environ: str) -> str:
    """Run it; what it said. Fails with that, if ``check``."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def eventually(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    """Ask ten times a second: those who are asked share the processors with those who work."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
