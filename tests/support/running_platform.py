"""The whole platform for a test: `edt up` on a free port in a home of its own, and certainly nothing left of it.

with Platform(tmp_path) as platform:
    job = platform.submit(folder_or_script, "--numWorker 2")
    platform.wait(job, "FINISHED")
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from checker.watch import Checker, Watch
from edt_cli.up.home import home_tag
from support.credentials import PASSWORD
from support.paging import every
from support.ports import free_port
from support.tagged import bearers, kill_bearers, leads, lives, training
from support.typed import Done, edt
from support.waiting import until

EXECS = "/platform/rest/deeplearning/v1/execs"
_ON_ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])"
)


class Platform:
    """`edt up` and what a test does with it. May be started again after ``interrupt`` or a kill.

    A checker looks at it all the time; at the end nothing may have been wrong.

    With ``one_core`` all of it is on one core. A node of one slot then gives its engine one thread. With two, an engine
    is far slower on a machine that does other things besides.
    """

    def __init__(
        self, folder: Path, slots: int = 4, *, tls: bool = False, one_core: bool = False, **environ: str
    ) -> None:
        self.command: tuple[str, ...] = (sys.executable, "-m", "edt_cli")
        self._before = [sys.executable, "-c", _ON_ONE_CORE] if one_core else []
        self.home = folder / "home"
        self.folder = folder
        self.tag = home_tag(self.home)
        self.port = free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.api = httpx.Client(base_url=self.url, auth=("admin", PASSWORD), timeout=30, verify=not tls)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDT_")},
            "EDT_TAG": self.tag,  # so that `edt up` itself is found by its mark, too
            "EDT_ADMIN_PASSWORD": PASSWORD,
            "EDT_CPU_SLOTS": str(slots),
            "EDT_DEVICES": "cpu",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            **environ,
        }
        self.checker = Checker(self.home, self.tag, environ.get("EDT_DATABASE_URL", ""))
        self._watch = Watch(self.checker)
        self.asserts = True
        """Whether the end of the block fails where the checker has found something."""
        self.up: subprocess.Popen[bytes] | None = None
        self.jobs: list[str] = []
        """Exec ids of what was submitted, in order."""
        self._others: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}
        """Name of each other node to its slots and its agent."""

    def __enter__(self) -> Platform:
        self._watch.__enter__()
        try:
            self.start(*(["--tls"] if self.url.startswith("https:") else []))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._watch.close()
            if kind is None and self.up is not None and self.up.poll() is None:
                self.checker.settle()
        finally:
            self.api.close()
            self.kill_everything()
        if kind is not None or (self.asserts and self.checker.violations):
            sys.stderr.write(f"--- what `edt up` said ---\n{self.log}\n")
            sys.stderr.writelines(f"{violation}\n" for violation in self.checker.violations)
        if kind is None and self.asserts:
            self.checker.assert_sound()

    @property
    def log(self) -> str:
        """All that `edt up` has written, of every start."""
        path = self.folder / "up.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ── the platform ──────────────────────────────────────────────────────────────────────────────────────────
    def start(self, *options: str, ready: bool = True) -> None:
        """`edt up`, and wait until it serves."""
        words = [*self._before, *self.command, "up", "--home", str(self.home), "--port", str(self.port), *options]
        with (self.folder / "up.log").open("ab") as output:
            self.up = subprocess.Popen(
                words, env=self.environ, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )
        if ready:
            until(self.serves, 120, "edt up serves and its node is there")

    def add_node(self, name: str, slots: int) -> subprocess.Popen[bytes]:
        """A second agent on this machine, as `edt agent` on another would be."""
        agent = self._start_agent(name, slots)
        until(lambda: name in {node["name"] for node in self.nodes()}, 60, f"node {name} is there")
        return agent

    def _start_agent(self, name: str, slots: int) -> subprocess.Popen[bytes]:
        token = (self.home / "join-token").read_text().strip()
        words = [sys.executable, "-m", "edt_cli", "agent", "--api", self.url, "--token", token, "--name", name]
        with (self.folder / f"{name}.log").open("ab") as output:
            agent = subprocess.Popen(
                [*words, "--home", str(self.home)],
                env={**self.environ, "EDT_CPU_SLOTS": str(slots)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._others[name] = slots, agent
        return agent

    def agents(self) -> dict[str, int]:
        """Name of each other node to the pid of its agent."""
        return {name: agent.pid for name, (_, agent) in self._others.items() if agent.poll() is None}

    def revive(self) -> list[str]:
        """Start again what an operator would: `edt up` and the other nodes' agents, where they have died."""
        dead = [name for name, (_, agent) in self._others.items() if agent.poll() is not None]
        for name in dead:
            self._start_agent(name, self._others[name][0])
        if self.up is not None and self.up.poll() is not None:
            self.start(ready=False)
            dead.append("edt up")
        return dead

    def interrupt(self, seconds: float = 60.0) -> int:
        """Ctrl-C; answers the exit status."""
        assert self.up is not None
        self.up.send_signal(signal.SIGINT)
        return self.up.wait(seconds)

    def kill_control_plane(self) -> None:
        """SIGKILL to `edt up` and all it started; supervisors and their engines are left alone."""
        self.checker.disturbed()
        parts = set(bearers(self.tag)) - training(self.tag)
        for pid in parts:
            _kill(pid)
        self._reap()
        until(lambda: not any(map(lives, parts)), what="all are gone, and what they listened on is free")

    def kill_everything(self) -> None:
        """SIGKILL to everything that bears the home's mark, until nothing is left."""
        kill_bearers(self.tag)
        self._reap()

    def processes(self, **marks: str) -> dict[int, str]:
        """pid to command line of all that lives of this home."""
        return bearers(self.tag, **marks)

    def supervisors(self) -> list[int]:
        """pids of supervisors, the warm one included: each leads its session."""
        return [pid for pid in training(self.tag) if leads(pid)]

    def supervisor_of(self, job: str) -> int | None:
        """pid of the supervisor of the job's newest attempt on this machine, from its own paper."""
        papers = sorted(
            (self.home / "jobs" / job / "spool").glob("*/attempt.json"), key=lambda path: path.stat().st_mtime
        )
        return int(json.loads(papers[-1].read_text())["pid"]) if papers else None

    # ── what a user does ──────────────────────────────────────────────────────────────────────────────────────
    def cli(self, *words: str, stdin: str = "", **environ: str) -> Done:
        """`edt …` as a user of this machine would type it, in the test's folder."""
        own = {name: value for name, value in self.environ.items() if name != "EDT_ADMIN_PASSWORD"}
        return edt(words, {**own, "EDT_API": self.url, "NO_COLOR": "1", **environ}, self.folder, stdin)

    def submit(self, path: Path, options: str = "", arguments: str = "", framework: str = "edtPyTorch") -> str:
        """POST a script or a folder with a ``main.py`` as WMLA's clients do; answers the exec id."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.add(path, path.name)
        model = f"--model-main {path.name}" if path.is_file() else f"--model-dir {path.name} --model-main main.py"
        args = f"--exec-start {framework} {model} {options} {arguments}"
        files = {"file": ("x.modelDir.tar", buffer.getvalue())}
        answer = self.api.post(EXECS, params={"args": args}, files=files)
        answer.raise_for_status()
        job = str(answer.json()["id"])
        self.checker.acknowledge(job)
        self.jobs.append(job)
        return job

    def job(self, job: str) -> dict[str, Any]:
        """The job with all that the platform knows of it."""
        answer = self.api.get(f"/api/v1/jobs/{job}")
        answer.raise_for_status()
        found = dict(answer.json())
        self.checker.saw(job, found["state"])
        return found

    def wait(self, job: str, *states: str, seconds: float = 120.0) -> dict[str, Any]:
        """Until the job is in one of these states; fails at once when it is over in another."""
        deadline = time.monotonic() + seconds
        while (now := self.job(job))["state"] not in states:
            if now["state"] in {"FINISHED", "KILLED", "ERROR"} or time.monotonic() > deadline:
                raise AssertionError(f"{job} is {now['state']}, not {states}: {now['message']}\n{self.errors(job)}")
            time.sleep(0.05)
        return now

    def errors(self, job: str) -> str:
        """What the job wrote to standard error, and its supervisors to their logs."""
        folder = self.home / "jobs" / job
        papers = [*folder.glob("log/*.err"), *folder.glob("spool/*/supervisor.log")]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in papers)

    def nodes(self) -> list[dict[str, Any]]:
        return every(self.api, "/api/v1/nodes")

    def resizes(self, job: str) -> list[dict[str, Any]]:
        return every(self.api, f"/api/v1/jobs/{job}/resizes")

    def serves(self) -> bool:
        """Whether the API is ready and this platform's node is up. Learns a password that was made up from the log."""
        if self.up is not None and self.up.poll() is not None:
            raise AssertionError(f"edt up ended with {self.up.returncode}:\n{self.log}")
        if shown := re.search(r"user admin, password (\S+) ", self.log):
            self.api.auth = httpx.BasicAuth("admin", shown.group(1))
        try:
            return self.api.get("/readyz").is_success and any(n["health"] == "up" for n in self.nodes())
        except httpx.HTTPError:
            return False

    def _reap(self) -> None:
        for process in (self.up, *(agent for _, agent in self._others.values())):
            if process is not None:
                process.wait(30)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        """It died with its parent."""
