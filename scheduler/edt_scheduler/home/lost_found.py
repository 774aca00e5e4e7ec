"""``lost+found`` of a home: the place for job folders that no row names. This module touches ``lost+found`` and
``jobs``.

    EDT_HOME/lost+found/edt-7/why.json    when the folder was moved here and why; written before the move
    EDT_HOME/lost+found/edt-7/edt-7/      the job's folder as it was, its fence file raised above every attempt

If there is an entry ``edt-7`` already, the next one is called ``edt-7.2``. A folder is moved when nothing of its job
lives:

1. ``shut_out`` raises the folder's fence file above every attempt. A supervisor reads this file once a second and then
   ends itself and all that it has started. An agent ends what was not assigned to its node.
2. ``Quiet.alive`` returns the supervisors that may still live. A supervisor that has ended has written this to its
   spool. A supervisor that was killed cannot write this. It counts as gone when its spool has not changed for longer
   than an agent needs to kill it.
3. ``move`` writes the note and then renames the folder. A crash between the two leaves a note without a folder.
   ``entries`` does not list such a note, and the next ``move`` writes it again.

A supervisor that was suspended during all this ends when it resumes, because its folder is gone. Only ``remove``
deletes folders, and only when an administrator asks for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edt_contract import durable
from edt_contract.attempt import USAGE_FILE
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.reports import REPORTS_FILE, ReportKind
from edt_scheduler.home import fence_files
from edt_scheduler.model.jobs import exec_id, job_number
from edt_scheduler.settings import Settings

NO_ATTEMPT = 2**31 - 1
"""A fence that no attempt reaches."""
SILENT_SECONDS = 120.0
"""The least time that a spool must stay unchanged. Some file systems show a change a minute late."""
KILLED_SECONDS = 90.0
"""How long after the grace an agent has surely killed what was not assigned to its node."""
NOTE = "why.json"
_ENTRY = re.compile(r"(edt-\d+)(?:\.\d+)?")
_LAST_BYTES = 1 << 16


@dataclass(frozen=True)
class Entry:
    """One folder in lost+found."""

    name: str
    """The entry's name, ``edt-7.2``."""
    job: str
    """Exec id of the job whose folder it is, ``edt-7``."""
    bytes: int
    """Total size of its files; links are not followed."""
    moved_at: float | None
    """Seconds since the epoch; None: the note cannot be read."""
    why: str


def job_folders(jobs: Path) -> dict[int, Path]:
    """Number and folder of every job that has one. Empty if ``jobs`` does not exist.

    Raises:
        OSError: ``jobs`` cannot be read.
    """
    try:
        found = list(os.scandir(jobs))
    except FileNotFoundError:
        return {}
    numbered = {job_number(entry.name): entry for entry in found}
    return {
        number: Path(entry.path)
        for number, entry in sorted((n, e) for n, e in numbered.items() if n is not None)
        if entry.is_dir(follow_symlinks=False)
    }


def folders_in_words(count: int) -> str:
    """``1 job folder``, ``2 job folders``."""
    return f"{count} job folder{'s' if count != 1 else ''}"


def highest_number(settings: Settings) -> int:
    """The highest number of a job that has a folder in ``jobs`` or ``lost+found``; 0: no job has one."""
    numbers = [job_number(match[1]) for match in map(_ENTRY.fullmatch, _names(settings.lost_found)) if match]
    return max([0, *job_folders(settings.jobs), *(number for number in numbers if number is not None)])


def is_taken(settings: Settings, number: int) -> bool:
    """Whether the home holds a folder, a link or a file with the name of this job."""
    name = exec_id(number)
    return os.path.lexists(settings.jobs / name) or os.path.lexists(settings.lost_found / name)


def attempts_begun(folder: Path) -> list[Path]:
    """The spools in a job's folder: one for each supervisor that was ever given an attempt of this job."""
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder / "spool") if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def newest_attempt(folder: Path) -> int:
    """The highest fence of an attempt that has begun in this folder; 0: no attempt has begun."""
    heads = [spool.name.partition("-")[0] for spool in attempts_begun(folder)]
    return max([0, *(int(head) for head in heads if head.isdecimal())])


def shut_out(folder: Path) -> None:
    """Let no attempt of this job live from now on. The fence file is durable when this returns.

    Raises:
        OSError: The fence file cannot be written.
    """
    checkpoints = folder / "checkpoint"
    if attempts_begun(folder):
        with suppress(FileExistsError):
            checkpoints.mkdir()  # supervisors look for the fence file in this folder
    fence_files.raise_to(checkpoints, NO_ATTEMPT)


class Quiet:
    """Finds out which supervisors of a job's folder may still live, by looking at the folder again and again.

    ``monotonic`` measures for how many seconds a spool has not changed. No file system's clock is compared with another
    clock.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float]) -> None:
        self.silent_seconds = max(SILENT_SECONDS, settings.grace_seconds + KILLED_SECONDS)
        """How long a spool without ATTEMPT_ENDED must stay unchanged until its supervisor counts as gone."""
        self._monotonic = monotonic
        self._seen: dict[Path, tuple[object, float]] = {}

    def alive(self, folder: Path) -> list[str]:
        """Names of the spools, such as ``2-n1``, whose supervisors may live. Call ``shut_out`` before."""
        return [spool.name for spool in attempts_begun(folder) if not (_has_ended(spool) or self._is_silent(spool))]

    def _is_silent(self, spool: Path) -> bool:
        now, signs = self._monotonic(), _signs_of_life(spool)
        before, since = self._seen.get(spool, (None, now))
        if signs != before:
            since = now
        self._seen[spool] = signs, since
        return now - since > self.silent_seconds


def _signs_of_life(spool: Path) -> object:
    """File facts that change every few seconds while a supervisor has engines, and whenever the supervisor reports
    something.
    """
    signs: list[tuple[str, int, int, int]] = []
    for name in (USAGE_FILE, REPORTS_FILE):
        with suppress(OSError):
            status = (spool / name).lstat()
            signs.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return signs


def _has_ended(spool: Path) -> bool:
    """Whether the last whole line of its reports is ATTEMPT_ENDED. No process was left when this line was written."""
    try:
        handle = os.open(spool / REPORTS_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - _LAST_BYTES))
        *whole, _ = file.read().split(b"\n")
    try:
        return bool(json.loads(whole[-1])["kind"] == ReportKind.ATTEMPT_ENDED)
    except (IndexError, ValueError, TypeError, KeyError):
        return False


def move(settings: Settings, folder: Path, why: str, now: float) -> str:
    """Move a job's folder to ``lost+found``, durably. Needs no lock.

    Legal only if the folder is shut out, nothing of the job lives, and no new job can get its number.

    Returns:
        The name of the entry in ``lost+found``.

    Raises:
        OSError: The folder cannot be moved, and stays where it is; or the move could not be made durable.
    """
    settings.lost_found.mkdir(mode=0o700, exist_ok=True)
    entry = settings.lost_found / folder.name
    count = 1
    while os.path.lexists(entry / folder.name):
        count += 1
        entry = settings.lost_found / f"{folder.name}.{count}"
    entry.mkdir(exist_ok=True)
    note = {"job": folder.name, "moved_at": now, "from": str(folder), "why": why}
    durable.write_whole(entry / NOTE, json.dumps(note, indent=2) + "\n")
    crash_point(CrashPoint.SCHEDULER_NOTED)
    folder.rename(entry / folder.name)
    for changed in (entry, settings.lost_found, folder.parent):  # a rename is durable once both folders are synced
        durable.sync(changed)
    crash_point(CrashPoint.SCHEDULER_SET_ASIDE)
    return entry.name


def entries(settings: Settings) -> list[Entry]:
    """The entries of ``lost+found``, ordered by job number."""
    found = []
    for name in sorted(_names(settings.lost_found), key=_order):
        match = _ENTRY.fullmatch(name)
        if match is None or not os.path.lexists(settings.lost_found / name / match[1]):
            continue  # something that the file system put there, or a note whose folder has not been moved yet
        moved_at, why = _noted(settings.lost_found / name / NOTE)
        found.append(Entry(name, match[1], _size(settings.lost_found / name), moved_at, why))
    return found


def shut_to_us(settings: Settings) -> str | None:
    """A sentence that says why ``lost+found`` cannot be read or written; None: it can, or it does not exist yet.

    If the home is the root of a mounted disk, the file system has made a folder of this name that only root may use.
    """
    folder = settings.lost_found
    if not os.path.lexists(folder) or os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return None
    return (
        f"{folder} cannot be read and written: give it to the user of the platform, or have EDT_HOME one folder below"
    )


def remove(settings: Settings, name: str) -> None:
    """Delete one entry for good.

    Raises:
        FileNotFoundError: There is no entry of this name.
        OSError: The entry cannot be deleted.
    """
    match = _ENTRY.fullmatch(name)
    if match is None or not (settings.lost_found / name).is_dir():
        raise FileNotFoundError(name)
    shutil.rmtree(settings.lost_found / name / match[1])  # the note goes last: it explains what is left
    shutil.rmtree(settings.lost_found / name)


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, PermissionError):  # a file system's own lost+found is not the platform's
        return []


def _order(name: str) -> tuple[int, str]:
    digits = re.search(r"\d+", name)
    return (int(digits[0]) if digits else 0, name)


def _noted(note: Path) -> tuple[float | None, str]:
    try:
        data = json.loads(note.read_text())
        return float(data["moved_at"]), str(data["why"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, "its note cannot be read"


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file may be deleted meanwhile
                total += Path(root, name).lstat().st_size
    return total
