"""One training of an emulation: the user's script in a process of its own, told by EDT_EMULATE. Room: runners.

It has a result folder of its own, so no training goes on from another's checkpoint; what it prints is kept in a file.
It dies with this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edt_runner import emulation, processes
from edt_runner.emulate.record import Reader, Record
from edt_runner.errors import RunnerError

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0
_TAIL_LINES = 15


class TrialFailed(RunnerError):
    """The script ended before its training did."""


@dataclass(frozen=True)
class Trial:
    """One training.

    Args:
        name: what it is called in table and picture.
        command: the script and its arguments.
        folder: its own.
        wish: what EDT_EMULATE says, without the record.
        seed: of the training; None: the environment's, or 0.
    """

    name: str
    command: Sequence[str]
    folder: Path
    wish: emulation.Emulation
    seed: int | None = None

    def run(self, look: Callable[[Record], None]) -> Record:
        """Train to the end; ``look`` is called with what is recorded so far, and may raise to end it at once.

        Raises:
            TrialFailed: the script failed, or trained nothing; says what it printed last.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        record, told, output = self.folder / "record.jsonl", self.folder / "emulate.json", self.folder / "output.txt"
        told.write_text(json.dumps({**self.wish.to_json_object(), "record": str(record)}))
        environ = {
            **{name: value for name, value in os.environ.items() if name not in ("LOG_DIR", "SAVED_MODEL_DIR")},
            emulation.VARIABLE: str(told),
            "RESULT_DIR": str(self.folder / "result"),
        }
        if self.seed is not None:
            environ["EDT_SEED"] = str(self.seed)
        reader, parent = Reader(record), os.getpid()
        with output.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *self.command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # This process has one thread when it forks, so nothing can be locked.
                preexec_fn=lambda: processes.die_with(parent),  # noqa: PLW1509
            )
        try:
            while process.poll() is None:
                look(reader.read())
                time.sleep(_LOOK_SECONDS)
            found = reader.read()
            look(found)
        finally:
            _end(process)
        if process.returncode:
            raise TrialFailed(f"{self.name}: {self.command[0]} ended with status {process.returncode}{_tail(output)}")
        if found.digest is None:
            raise TrialFailed(
                f"{self.name}: {self.command[0]} ended without having trained, takes a script that calls "
                f"FabricModel.train(){_tail(output)}"
            )
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it is left when this returns: not its supervisor either, which has a session of its own and, where it
    has not heard of its driver yet, would wait for a word of it."""
    below = {pid: processes.start_time(pid) for pid in processes.descendants(process.pid)}
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + _END_SECONDS
    while living := [pid for pid, begun in below.items() if begun and processes.start_time(pid) == begun]:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(_LOOK_SECONDS / 10)


def _tail(path: Path) -> str:
    """What the script printed last, each line indented."""
    with path.open(errors="replace") as file:
        lines = [line.rstrip() for line in deque(file, _TAIL_LINES)]
    return "".join(f"\n    {line}" for line in lines if line)
