"""The code of a submission, which moves from its staged folder into the folder of its job. Touches both."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edt_contract import durable
from edt_scheduler.home import lost_found
from edt_scheduler.model.jobs import SUBMITTED_CODE, JobSpec, exec_id
from edt_scheduler.settings import Settings

MAKES_ITS_OWN_MODEL_FOLDER = frozenset({"tensorflow"})
"""WMLA's plain TensorFlow samples create RESULT_DIR/model themselves; all others expect to find it."""


@dataclass
class SubmittedCode:
    """What was submitted, and where it lies: staged, or in a job's folder."""

    staged: Path
    directory: Path | None = None
    inode: int = 0

    def lay_out(self, settings: Settings, number: int, spec: JobSpec) -> bool:
        """Make the folder of this job around it, durably. False: something of this name lies in the home, which is
        another job's. Raises OSError; then nothing is left of it."""
        if lost_found.is_taken(settings, number):
            return False
        directory = settings.job_directory(exec_id(number))
        try:
            directory.mkdir()
        except FileExistsError:
            return False
        try:
            for name in ("log", "checkpoint", "spool"):
                (directory / name).mkdir()
            if spec.framework not in MAKES_ITS_OWN_MODEL_FOLDER:
                (directory / "model").mkdir()
            self.directory, self.inode = directory, self.staged.stat().st_ino
            self.staged.rename(directory / SUBMITTED_CODE)
            for folder in (directory, directory.parent, self.staged.parent):
                durable.sync(folder)
        except OSError:  # a full disk: no job comes of it, and nothing of one is left
            self._undo(directory)
            raise
        return True

    def take_back(self) -> None:
        """Undo ``lay_out``, where it was done. A folder that was set aside meanwhile stays where it is; one that the
        disk does not let go is set aside later."""
        if self.directory is None or self.staged.exists():
            return
        laid = self.directory / SUBMITTED_CODE
        with suppress(OSError):
            if laid.exists() and laid.stat().st_ino == self.inode:
                self._undo(self.directory)

    def _undo(self, directory: Path) -> None:
        laid = directory / SUBMITTED_CODE
        if laid.exists():
            laid.rename(self.staged)
        for folder in (*directory.iterdir(), directory):
            folder.rmdir()  # only what ``lay_out`` made, and nothing has been put into since
        self.directory = None
