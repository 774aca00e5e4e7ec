"""Files a user takes away, each whole or not there. Room: runners; writes in the folder it is given.

Two engines may write the same file at a time: one that leaves at the boundary that ends an epoch, and the one that is
first from there on and cannot know how far the other came. Both write the same state, so each has a draft of its own
and it does not matter whose is put in place last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from edt_runner import environment
from edt_runner.contract import DRAFT_PREFIX
from edt_runner.errors import NoRoom
from edt_runner.storage import MAY_PASS, disk_error, free_bytes, reason

_TRIES = 10
_AGAIN_SECONDS = 1.0
PLACE = "model"
"""What the user's files are called in reports."""
_MOVED_AWAY = f"{DRAFT_PREFIX}old-"
"""So begins the name of a folder that was moved away for the draft which takes its place."""


class UserFiles:
    """The files of one training, written by its first engine. A full disk costs a file of an epoch; for the final ones
    room is waited for.

    Args:
        folder: where they go.
        save: writes the files of this name there.
        report: tells the platform of the disk: (error, or "" where it took the files).
        note: says something in the job's log.
        clock, sleep: monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        save: Callable[[Path, str], None],
        report: Callable[[str], None],
        note: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._save, self._report, self._note = folder, save, report, note
        self._clock, self._sleep = clock, sleep

    def write(self, name: str) -> None:
        """Files of an epoch: where the disk does not take them they are left out, and the log says so."""
        error = self._try(name)
        if error is not None:
            self._note(f"{name} is left out, since {self._folder} cannot be written: {self._room(error)}")

    def write_final(self, name: str) -> None:
        """The files that the training was for. Raises NoRoom after EDT_ROOM_SECONDS."""
        begun, patience = self._clock(), environment.room_seconds()
        error = self._try(name)
        if error is not None:
            self._note(
                f"{name} cannot be written to {self._folder}: {self._room(error)}. It is tried again for {patience:g} s"
            )
        while error is not None:
            if self._clock() - begun >= patience:
                raise NoRoom(
                    f"{name} could not be written to {self._folder} within {patience:g} s: {self._room(error)}. The "
                    "training is kept in its recovery checkpoint; make room there, and it goes on from that"
                )
            self._sleep(_AGAIN_SECONDS)
            error = self._try(name)
            if error is None:
                self._note(f"{name} is written, after {self._clock() - begun:.0f} s")

    def _try(self, name: str) -> OSError | None:
        try:
            self._save(self._folder, name)
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise
            self._report(reason(error))
            return error
        self._report("")
        return None

    def _room(self, error: OSError) -> str:
        free = free_bytes(self._folder)
        return reason(error) + (f" ({free} bytes are free there)" if free is not None else "")


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A place beside ``path`` for a file or a folder that is at ``path`` afterwards, instead of what was there before.

    Its name ends as ``path``'s does, for writers that tell a format by it. It is on the disk before it is there. An
    error in the block leaves ``path`` as it was and nothing of the draft; raises OSError where it came of the disk,
    whatever the writer made of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = f"{uuid.uuid4().hex[:8]}-{path.name}"
    draft = path.with_name(DRAFT_PREFIX + own)
    try:
        try:
            yield draft
        except Exception as error:
            full = disk_error(error, path.parent)
            if full is None:
                raise
            raise full from error
        _sync(draft)
        if draft.is_dir():
            _put_folder(draft, path, path.with_name(_MOVED_AWAY + own))
        else:
            draft.replace(path)
    finally:
        _remove(draft)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed; a folder that one of them had moved away, and put nothing in the
    place of, is put back. Only where no writer is left: it would lose its draft."""
    if not folder.is_dir():
        return
    for old in sorted(folder.glob(f"{_MOVED_AWAY}*"), key=lambda path: path.stat().st_mtime, reverse=True):
        found = re.fullmatch(re.escape(_MOVED_AWAY) + r"[0-9a-f]{8}-(.+)", old.name)
        if found and not (place := old.with_name(found[1])).exists():
            old.rename(place)
    for draft in list(folder.glob(f"{DRAFT_PREFIX}*")):
        _remove(draft)


def _put_folder(draft: Path, path: Path, old: Path) -> None:
    """No system call puts a folder in the place of another that holds files: the old one is moved away before."""
    for left in reversed(range(_TRIES)):
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
        try:
            draft.rename(path)
        except OSError as error:
            if left and error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another writer was faster
                shutil.rmtree(old, ignore_errors=True)
                continue
            with contextlib.suppress(OSError):  # where there was no old one, or another writer's is there by now
                old.rename(path)
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return


def _sync(path: Path) -> None:
    """A disk may find out only now that it has no room for what it took."""
    for place in (*path.rglob("*"), path) if path.is_dir() else (path,):
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
