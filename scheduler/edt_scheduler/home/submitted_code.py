"""What a submission brings: its code, and the checkpoint from which it may begin. They move from staged folders into
the job's folder. This module touches both.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edt_contract import durable
from edt_scheduler.home import lost_found
from edt_scheduler.model.jobs import BEGIN, SUBMITTED_CODE, JobSpec, exec_id
from edt_scheduler.settings import Settings


def sync_parents(settings: Settings, codes: Iterable[SubmittedCode]) -> None:
    """Make the moves of these codes durable.

    Raises:
        OSError: The disk does not accept it. The moves are done.
    """
    folders = {code.staged.parent for code in codes}
    for folder in (settings.jobs, *folders) if folders else ():
        durable.sync(folder)


@dataclass
class SubmittedCode:
    """The submitted code and the place where it is: staged, or in a job's folder."""

    staged: Path
    begin: Path | None = None
    """The staged copy of the checkpoint from which the job begins; None: it begins anew."""
    directory: Path | None = None
    inode: int = 0

    def lay_out(self, settings: Settings, number: int, spec: JobSpec) -> bool:
        """Make the job's folder and move the code into it. What is in the folder is durable when this returns; that it
        is there, and no longer staged, is once ``sync_parents`` has returned.

        Returns:
            False: the home holds a folder, link or file of this name, which belongs to another job. Nothing was
                changed.

        Raises:
            OSError: The folder cannot be made. Nothing is left of it.
        """
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
            if spec.model_folder:
                (directory / "model").mkdir()
            self.directory, self.inode = directory, self.staged.stat().st_ino
            self.staged.rename(directory / SUBMITTED_CODE)
            if self.begin is not None:
                self.begin.rename(directory / BEGIN)
            durable.sync(directory)
        except OSError:  # for example a full disk: there will be no job, so leave nothing of its folder
            self._undo(directory)
            raise
        return True

    def take_back(self) -> None:
        """Undo ``lay_out``, if it was done.

        A folder that was moved to ``lost+found`` meanwhile stays there. A folder that cannot be removed now is moved
        there later.
        """
        if self.directory is None:
            return
        laid = self.directory / SUBMITTED_CODE
        with suppress(OSError):
            if not self.staged.exists() and laid.exists() and laid.stat().st_ino == self.inode:
                self._undo(self.directory)

    def _undo(self, directory: Path) -> None:
        laid = directory / SUBMITTED_CODE
        if laid.exists():
            laid.rename(self.staged)
        if self.begin is not None and (directory / BEGIN).exists():
            (directory / BEGIN).rename(self.begin)
        for folder in (*directory.iterdir(), directory):
            folder.rmdir()  # removes only the empty folders that ``lay_out`` made
        self.directory = None
