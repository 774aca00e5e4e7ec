"""Killing an engine from outside, as a machine would. Room: examples; reads a supervisor's reports, sends a signal."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from edt_demo.exits import DemoFailed, ExitCode


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
