"""``lost+found`` of a home: where job folders go that no row knows. Touches it and ``jobs``.

    EDT_HOME/lost+found/edt-7/why.json    when it was moved here and why; written before the move
    EDT_HOME/lost+found/edt-7/edt-7/      the job's folder as it was, its fence file raised above every attempt

The entry is called ``edt-7.2`` where there is an ``edt-7`` already. A folder is moved when nothing of its job lives:

1. ``shut_out`` raises its fence file above every attempt. A supervisor looks at it once a second and ends itself with
   all that it has started; an agent ends what its node was not assigned.
2. ``Quiet.alive`` tells which supervisors may still live. One that has ended has said so in its spool; one that was
   killed never will, and counts as gone when its spool has stood still for longer than an agent needs to kill it.
3. ``move`` writes the note, then renames. A crash between the two leaves a note without a folder, which ``entries``
   does not list and the next ``move`` writes anew.

A supervisor that slept through all of it ends when it wakes up: it sees that its folder is gone. Only ``remove``
deletes, and only on an administrator's word.
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
"""At least so long must a spool stand still: some file systems show a change a minute late."""
KILLED_SECONDS = 90.0
"""So long after the grace an agent has surely killed what its node was not assigned."""
NOTE = "why.json"
_ENTRY = re.compile(r"(edt-\d+)(?:\.\d+)?")
_LAST_BYTES = 1 << 16


@dataclass(frozen=True)
class Entry:
    """One folder in lost+found."""

    name: str
    """Of the entry, ``edt-7.2``."""
    job: str
    """Whose folder it is, ``edt-7``."""
    bytes: int
    """What its files hold, links not followed."""
    moved_at: float | None
    """Seconds since the epoch; None where the note cannot be read."""
    why: str


def job_folders(jobs: Path) -> dict[int, Path]:
    """Number to folder of every job that has one. Empty where ``jobs`` does not exist; raises OSError."""
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
    """The highest number of a job that has a folder in the home, be it in ``lost+found``; 0: none has."""
    numbers = [job_number(match[1]) for match in map(_ENTRY.fullmatch, _names(settings.lost_found)) if match]
    return max([0, *job_folders(settings.jobs), *(number for number in numbers if number is not None)])


def is_taken(settings: Settings, number: int) -> bool:
    """Whether a folder of this number lies in the home. A link or a file counts, too."""
    name = exec_id(number)
    return os.path.lexists(settings.jobs / name) or os.path.lexists(settings.lost_found / name)


def attempts_begun(folder: Path) -> list[Path]:
    """The spools in a job's folder: one for each supervisor that was ever given an attempt of it."""
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder / "spool") if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def newest_attempt(folder: Path) -> int:
    """The highest number of an attempt that has begun in this folder; 0: none has."""
    heads = [spool.name.partition("-")[0] for spool in attempts_begun(folder)]
    return max([0, *(int(head) for head in heads if head.isdecimal())])


def shut_out(folder: Path) -> None:
    """From here on no attempt of this job may live. Durable when this returns; raises OSError."""
    checkpoints = folder / "checkpoint"
    if attempts_begun(folder):
        with suppress(FileExistsError):
            checkpoints.mkdir()  # supervisors look for the file in it
    fence_files.raise_to(checkpoints, NO_ATTEMPT)


class Quiet:
    """Tells which supervisors of a job's folder may still live, by looking at it again and again.

    ``monotonic`` counts how long a spool stands still; no clock of a file system is compared with any other.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float]) -> None:
        self.silent_seconds = max(SILENT_SECONDS, settings.grace_seconds + KILLED_SECONDS)
        """So long must a spool without a last word stand still until nothing of it lives."""
        self._monotonic = monotonic
        self._seen: dict[Path, tuple[object, float]] = {}

    def alive(self, folder: Path) -> list[str]:
        """Names of the spools, ``2-n1``, whose supervisors may live. Only worth asking after ``shut_out``."""
        return [spool.name for spool in attempts_begun(folder) if not (_has_ended(spool) or self._is_silent(spool))]

    def _is_silent(self, spool: Path) -> bool:
        now, signs = self._monotonic(), _signs_of_life(spool)
        before, since = self._seen.get(spool, (None, now))
        if signs != before:
            since = now
        self._seen[spool] = signs, since
        return now - since > self.silent_seconds


def _signs_of_life(spool: Path) -> object:
    """What changes every few seconds while a supervisor has engines, and whenever something happens to it."""
    signs: list[tuple[str, int, int, int]] = []
    for name in (USAGE_FILE, REPORTS_FILE):
        with suppress(OSError):
            status = (spool / name).lstat()
            signs.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return signs


def _has_ended(spool: Path) -> bool:
    """Whether the last whole line of its reports is the last word: then nothing of it was left when it was written."""
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
    """Move a job's folder to ``lost+found``, durably; the name of its entry. Raises OSError; then it is not moved.

    Legal when it is shut out, nothing of it lives and no job can come to have its number. No lock is needed for it.
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
    for changed in (entry, settings.lost_found, folder.parent):  # a rename is durable once both its folders are
        durable.sync(changed)
    crash_point(CrashPoint.SCHEDULER_SET_ASIDE)
    return entry.name


def entries(settings: Settings) -> list[Entry]:
    """What lies in lost+found, by number."""
    found = []
    for name in sorted(_names(settings.lost_found), key=_order):
        match = _ENTRY.fullmatch(name)
        if match is None or not os.path.lexists(settings.lost_found / name / match[1]):
            continue  # what a file system puts there itself, or a folder that has not been moved yet
        moved_at, why = _noted(settings.lost_found / name / NOTE)
        found.append(Entry(name, match[1], _size(settings.lost_found / name), moved_at, why))
    return found


def shut_to_us(settings: Settings) -> str | None:
    """Why nothing can be read from it or moved there, a sentence; None: it can, or there is none yet.

    Where the home is the root of a mounted disk, the file system has made a folder of this name, for root alone.
    """
    folder = settings.lost_found
    if not os.path.lexists(folder) or os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return None
    return (
        f"{folder} cannot be read and written: give it to the user of the platform, or have EDT_HOME one folder below"
    )


def remove(settings: Settings, name: str) -> None:
    """Delete one entry for good. Raises OSError, FileNotFoundError where there is none of this name."""
    match = _ENTRY.fullmatch(name)
    if match is None or not (settings.lost_found / name).is_dir():
        raise FileNotFoundError(name)
    shutil.rmtree(settings.lost_found / name / match[1])  # the note goes last: what is left says what it is
    shutil.rmtree(settings.lost_found / name)


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, PermissionError):  # one that a file system has made for its own is none of ours
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
            with suppress(OSError):  # it may go meanwhile
                total += Path(root, name).lstat().st_size
    return total
