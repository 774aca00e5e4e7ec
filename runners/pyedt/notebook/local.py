"""A training on this machine, without a platform: the same main.py, in a process of its own with engines of its own."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from edt_runner.readable_log import FILE_NAME
from pyedt.notebook.display import Curve, Progress, say
from pyedt.notebook.errors import JobFailed
from pyedt.notebook.received import KERNEL_VARIABLE, MAIN

_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 15.0
"""How long a training may take to end after the cell was interrupted."""
_NOT_PASSED_ON = ("EDT_TOKEN", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")
"""Variables that the training does not get: a secret that it does not need, and those by which a kernel says that it
shows colours, with which bars that move would come."""
_STEP = re.compile(r"Train,\s+Timestamp: \d+,\s+Global steps: (\d+),\s+Iteration: (\d+),\s+Loss: ([^\s,]+)")
"""A line of the loggers' log, of each step."""
_COURSE = re.compile(r"  (epoch [\d,]+/[\d,]+ · step ([\d,]+)/.*?(\d+) workers?)$")
_RESIZE = re.compile(r" → (\d+) workers? at step (\d+)$")
"""A line of the readable log about the training, and one about a change of its size."""


class LocalJob:
    """One training on this machine, and the folder with its results.

    Args:
        name: name of the notebook.
    """

    def __init__(self, name: str) -> None:
        self.folder = _result_folder(name)
        self.id = self.folder.name

    @property
    def files(self) -> Path:
        """The folder with the model's files."""
        return self.folder / "model"

    def train(self, code: Path, progress: Progress) -> None:
        """Run the training to its end. What it prints is shown below the cell, and so is its progress.

        Args:
            code: folder with the main.py.
            progress: where the progress is shown.

        Raises:
            JobFailed: it has failed.
            KeyboardInterrupt: the user has interrupted the cell; the training has ended.
        """
        log = self.folder / "log"
        environ = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        environ |= {
            "RESULT_DIR": str(self.folder),
            "LOG_DIR": str(log),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            KERNEL_VARIABLE: str(os.getpid()),
        }
        began, course, last = time.monotonic(), _Course(self.id, log), ""
        process = subprocess.Popen(
            [sys.executable, "-u", str(code / MAIN)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the kernel's interrupt is not for it: it is asked to end below
        )
        assert process.stdout is not None
        try:
            with process.stdout as output:
                for line in _lines(output, lambda: course.show(progress)):
                    last = line or last
                    say(line)
            status = process.wait()
        except BaseException:
            say(f"Stopping {self.id}.")
            _end(process)
            raise
        course.show(progress, last=True)
        if status == 0 and course.iterations:  # none are told where a logger of the user's takes the place of ours
            seconds = time.monotonic() - began
            say(f"--------END TRAINING: completed {course.iterations} iterations in {seconds:.2f} seconds.--------")
        say(f"Job {self.id} finishes with state {'ERROR' if status else 'FINISHED'}.")
        if status:
            raise JobFailed(self.id, last or f"it has ended with exit status {status}")


class _Course:
    """Reads the course of a training out of its log."""

    def __init__(self, job: str, log: Path) -> None:
        self._line = f"{job} · starting"
        self._job, self._curve = job, Curve()
        self._files = {log / "stdout": 0, log / FILE_NAME: 0}
        """Each file of the log, and how many bytes of it were read."""
        self.iterations = 0

    def show(self, progress: Progress, *, last: bool = False) -> None:
        """Read what is new, and show it."""
        if not last and not progress.wants_curve:
            return
        for path in self._files:
            for line in self._news(path):
                self._take(line)
        if progress.redraws:  # elsewhere the training's own lines say it
            progress.show(self._line, self._curve, last=last)

    def _news(self, path: Path) -> list[str]:
        try:
            with path.open("rb") as file:
                file.seek(self._files[path])
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._files[path] += len(whole) + len(end)
        return whole.decode(errors="replace").splitlines()

    def _take(self, line: str) -> None:
        if step := _STEP.search(line):
            self.iterations = int(step[2])
            self._curve.loss.append((int(step[1]), float(step[3])))
        elif found := _COURSE.search(line):
            self._line = f"{self._job} · {found[1]}"
            self._curve.workers.append((int(found[2].replace(",", "")), int(found[3])))
        elif resize := _RESIZE.search(line):
            self._curve.workers.append((int(resize[2]), int(resize[1])))


def _lines(output: IO[bytes], waited: Callable[[], None]) -> Iterator[str]:
    """Yield each line as it comes, and call ``waited`` every now and then between them."""
    rest = b""
    while True:
        ready, _, _ = select.select([output], [], [], _LOOK_SECONDS)
        waited()
        if not ready:
            continue
        piece = os.read(output.fileno(), 1 << 16)
        *whole, rest = (rest + piece).split(b"\n")
        if not piece and rest:
            whole, rest = [rest], b""
        yield from (line.decode(errors="replace") for line in whole)
        if not piece:
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the engines leave, and kill what has not ended in time."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _result_folder(name: str) -> Path:
    """Make a folder for one training: the first of ``edt_result/<name>-1``, -2 … that is not there yet."""
    parent, number = Path.cwd() / "edt_result", 1
    parent.mkdir(exist_ok=True)
    while True:
        folder = parent / f"{name}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        return folder
