"""A provisioner beside a platform of a test, as `edt kubernetes` or `edt slurm` would run it."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import TracebackType
from typing import Any

from support.running_platform import Platform
from support.waiting import until


class Provisioner:
    """``python -m edt_provisioner``, started on enter and ended on exit. Its nodes are given back before.

    Args:
        platform: the platform that gets the pool.
        kind: the cluster manager.
        environ: its settings.
    """

    def __init__(self, platform: Platform, kind: str, **environ: str) -> None:
        self.platform, self.kind = platform, kind
        self.pool = environ.get("EDT_POOL", kind)
        self._environ = {
            **platform.environ,
            "EDT_API": platform.url,
            "EDT_HOME": str(platform.home),
            "EDT_TOKEN_FILE": str(platform.home / "join-token"),
            "EDT_POOL_SYNC_SECONDS": "0.5",
            **environ,
        }
        for name in ("EDT_CPU_SLOTS", "EDT_DEVICES", "EDT_ADMIN_PASSWORD"):
            self._environ.pop(name, None)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Provisioner:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self.set(max_nodes=0, min_nodes=0)
                until(self._is_empty, 60, f"all nodes of {self.pool} are gone")
        finally:
            self.stop()
        if kind is not None:
            sys.stderr.write(f"--- what the provisioner said ---\n{self.log}\n")

    def start(self) -> None:
        """Start it, and wait until its pool is there."""
        words = [sys.executable, "-m", "edt_provisioner", self.kind]
        with (self.platform.folder / f"provisioner-{self.pool}.log").open("ab") as output:
            self.process = subprocess.Popen(
                words, env=self._environ, stdout=output, stderr=output, cwd=self.platform.folder, start_new_session=True
            )
        until(self._is_there, 60, f"pool {self.pool} is there: {self.log}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it. Its nodes stay."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)

    @property
    def log(self) -> str:
        """All that it has written, of every start."""
        path = self.platform.folder / f"provisioner-{self.pool}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def view(self) -> dict[str, Any]:
        """The pool, as the API shows it."""
        answer = self.platform.api.get("/api/v1/pools")
        answer.raise_for_status()
        return next(pool for pool in answer.json()["pools"] if pool["name"] == self.pool)

    def set(self, **values: float) -> None:
        """What an administrator sets."""
        self.platform.api.patch(f"/api/v1/pools/{self.pool}", json=values).raise_for_status()

    def waiting(self) -> list[dict[str, Any]]:
        """The nodes that were asked for and are not there, and those that are given up and not gone."""
        return list(self.view()["waiting"])

    def explained(self, job: str) -> str:
        """What the platform says of a job's slots, as `edt explain` shows it first."""
        answer = self.platform.api.get(f"/api/v1/jobs/{job}/explanation")
        answer.raise_for_status()
        return str(answer.json()["sentence"])

    def nodes(self) -> list[str]:
        """The nodes that are there, by name."""
        return sorted(
            node["name"] for node in self.platform.nodes() if node.get("pool") == self.pool and node["health"] == "up"
        )

    def _is_empty(self) -> bool:
        view = self.view()
        return not view["waiting"] and not view["there"]

    def _is_there(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the provisioner ended with {self.process.returncode}:\n{self.log}")
        answer = self.platform.api.get("/api/v1/pools")
        return answer.is_success and any(pool["name"] == self.pool for pool in answer.json()["pools"])
