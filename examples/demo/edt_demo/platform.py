"""The platform of the demo: ``edt up`` on a free port, its EDT_HOME removed at the end; and an engine killed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.settings import SLOTS, Framework

_END_SECONDS = 20.0
"""Longest that a first Ctrl-C may take here; a second one kills."""
_KILL_SECONDS = 10.0


class Platform:
    """``with Platform(...) as platform:`` starts it; leaving ends it. Whether it serves is the client's to find out."""

    def __init__(self, framework: Framework, devices: str, log: Path) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="edt-demo-"))
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.password = secrets.token_urlsafe(18)
        self.log = log
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDT_")},
            "EDT_ADMIN_PASSWORD": self.password,
            "EDT_AGENT_TICK_SECONDS": "10",  # so that what the table shows is the notifications' work
            "EDT_WARM": framework.name,
            **_slots(devices),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Platform:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "edt_cli", "up", "--home", str(self.home), "--port", str(self.port)]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                words,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C is ours to pass on
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        for number, seconds in ((signal.SIGINT, _END_SECONDS), (signal.SIGINT, _KILL_SECONDS)):
            if self._process.poll() is None:
                self._process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(seconds)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if kind is None or issubclass(kind, KeyboardInterrupt):
            shutil.rmtree(self.home, ignore_errors=True)
        else:
            print(f"Jobs, their logs and the database are kept in {self.home}", file=sys.stderr)

    @property
    def ended(self) -> bool:
        """It has ended though nobody ended it."""
        return self._process is not None and self._process.poll() is not None

    @property
    def last_words(self) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:]) if self.log.exists() else ""


def _slots(devices: str) -> dict[str, str]:
    """Four slots in any case: GPUs where they were asked for and there are so many, else CPU stand-ins."""
    if devices == "auto":
        from edt_agent import gpus

        found = gpus.visible(gpus.find(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        if len(found) >= SLOTS:
            return {"EDT_DEVICES": "auto", "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in found[:SLOTS])}
    return {"EDT_DEVICES": "cpu", "EDT_CPU_SLOTS": str(SLOTS)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_an_engine(home: Path, exec_id: str) -> int:
    """SIGKILL to the engine of the job that was started last and lives; its pid."""
    started: dict[int, int] = {}
    for path in sorted((home / "jobs" / exec_id / "spool").glob("*/reports.jsonl")):
        for line in path.read_text().splitlines():
            report = json.loads(line)
            if report["kind"] == "engine-started":
                started[report["body"]["allocation"]] = report["body"]["pid"]
            elif report["kind"] == "engine-gone":
                started.pop(report["body"]["allocation"], None)
    if not started:
        raise DemoFailed(ExitCode.CRASH, f"{exec_id} has no engine that could be killed")
    pid = started[max(started)]
    os.kill(pid, signal.SIGKILL)
    return pid
