"""API, scheduler and agent of one home, each started again as soon as it dies, as `edt up` does without the pauses.

``python -m support.restarter '{"api": {…}, "scheduler": {…}, "agent": {…}}' DEATHS``: each process with this
environment besides; of each death a line ``name status`` goes into the file DEATHS. One process imports everything
once and forks them: they are processes of their own, running the product's own mains, a second sooner each time. The
agent's supervisors are stand-ins.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import edt_api.__main__ as api
import edt_scheduler.__main__ as scheduler
from edt_contract.processes import die_with
from support import agent_main

TESTS = Path(__file__).resolve().parents[1]
PAUSE_SECONDS = 0.05


def agent() -> int:
    asyncio.run(agent_main.main())
    return 0


PARTS: Mapping[str, Callable[[], int]] = {"api": lambda: api.main([]), "scheduler": scheduler.main, "agent": agent}


def keep(environs: Mapping[str, Mapping[str, str]], deaths: Path) -> None:
    """Until SIGTERM, which ends this process and with it all of them."""
    children = {_start(name, environs[name], deaths.parent): name for name in environs}
    while True:
        pid, status = os.wait()
        name = children.pop(pid, None)
        if name is not None:
            with deaths.open("a") as lines:
                lines.write(f"{name} {os.waitstatus_to_exitcode(status)}\n")
            time.sleep(PAUSE_SECONDS)
            children[_start(name, environs[name], deaths.parent)] = name


def _start(name: str, environ: Mapping[str, str], folder: Path) -> int:
    restarter = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with(restarter)
        os.setsid()
        output = os.open(folder / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(environ)
        code = PARTS[name]()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        sys.stderr.write(f"{name} ended: {error!r}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def start(environs: Mapping[str, Mapping[str, str]], deaths: Path) -> subprocess.Popen[bytes]:
    """A restarter as a child of the test."""
    folders = [str(TESTS.parent / folder) for folder in ("api", "scheduler", "runners", "migrations")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    with (deaths.parent / "restarter.out").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "support.restarter", json.dumps(environs), str(deaths)],
            env={**environ, "PYTHONPATH": os.pathsep.join([*folders, str(TESTS)])},
            stdout=output,
            stderr=output,
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep(json.loads(sys.argv[1]), Path(sys.argv[2]))
