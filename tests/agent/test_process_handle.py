"""A supervisor that is a process of this machine, in the moments in which it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from edt_agent.launchers.process import ProcessHandle
from edt_agent.processes import Children
from edt_agent.supervisor_records import SupervisorRecord
from edt_contract.processes import TAG_VARIABLE
from support.waiting import until


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_supervisor_lives_until_it_is_known_how_it_ended(tmp_path: Path) -> None:
    """Its end is seen by two ways, of which either may be the first: its descriptor, and the signal to its parent."""

    async def ends() -> None:
        children = Children()  # nobody reaps, as if the signal came later than the descriptor's word
        child = children.start([sys.executable, "-c", "import time; time.sleep(60)"], {TAG_VARIABLE: "t"})
        entry = SupervisorRecord("edt-1", 1, "n", str(tmp_path), "", 0.1, child.id.pid, child.id.starttime, "life")
        handle = ProcessHandle(entry, "t", child)
        looks: list[tuple[bool, int | None]] = []
        handle.watch(lambda: looks.append((handle.lives, handle.code)))
        os.kill(child.id.pid, signal.SIGKILL)
        until(lambda: _state(child.id.pid) == "Z")
        await asyncio.sleep(0.05)
        assert set(looks) <= {(True, None)}
        children.reap()
        assert looks[-1] == (False, -9)
        handle.drop()

    asyncio.run(ends())
