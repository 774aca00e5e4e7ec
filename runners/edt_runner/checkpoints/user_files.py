"""Writes the files that a user downloads. Each file is complete or absent.

Two engines may write the same file at the same time. This happens when the first engine leaves at the end of an epoch:
the next first engine writes the file again, because it cannot know whether the leaving one has finished. Both write
the same state. Each has its own draft, so it does not matter which of them puts its draft in place last.

The files of an epoch are written in another thread while the training goes on, from a copy of what goes into them. At
most one copy is in memory: model and optimizer once more, until the files are on disk. The training waits if another
epoch ends before that. If the first engine dies meanwhile, others are further, so the second engine in rank order holds
a copy, too, until the next epoch's end, and writes it if it becomes the first.
"""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from edt_contract.durable import DRAFT_PREFIX, MAY_PASS, disk_error, free_bytes, reason, sync
from edt_runner import environment
from edt_runner.errors import NoRoom

_TRIES = 10
_AGAIN_SECONDS = 1.0
BEST = "model_best"
"""Name of the files of the epoch with the best value of a metric."""
PLACE = "model"
"""Name of the user's files in reports."""
_MOVED_AWAY = f"{DRAFT_PREFIX}old-"
"""Beginning of the name of an old folder that was moved away so that a draft can take its place."""


Save = Callable[[Path, str], None]
"""(folder, name) -> None; writes the files of that name to the folder."""
Copy = Callable[[], Save]
"""Copies what goes into the files, while that does not change; returns what writes the copy."""


Then = Callable[[], None] | None
Names = tuple[str, Then]
"""The name of files, and what is called when they are on disk."""


class UserFiles:
    """Writes the files of one training, in its first engine. Only the training thread calls its methods.

    If the disk is full, the files of an epoch are left out; the final files are tried again until there is room. Any
    other error in the writing thread is raised by the next call.

    Args:
        folder: the folder that the files are written to.
        save: writes the files of a name with the present state.
        export: refers to what goes into the files now. The copy is made in another thread, before ``wait_copied``
            returns. None: the files are written at once, since the framework can only write the living model.
        report: reports a disk error to the platform, or "" if the disk took the files.
        note: called with a sentence for the job's log.
        keep_last: how many epochs' files are kept; None: all.
        clock: monotonic seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        folder: Path,
        save: Save,
        report: Callable[[str], None],
        note: Callable[[str], None],
        *,
        export: Callable[[], Copy] | None = None,
        keep_last: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._save, self._report, self._note = folder, save, report, note
        self._export, self._keep_last, self._clock, self._sleep = export, keep_last, clock, sleep
        self._present: _Copied | None = None
        """The copy of the present state; None: there is none yet."""
        self._held: tuple[_Copied, Sequence[Names]] | None = None
        """What another first engine may not have finished."""
        self._work: deque[tuple[_Copied, Names]] = deque()
        self._lock = threading.Lock()
        """Held while ``_work`` and ``_thread`` change together."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # ── the files of an epoch ─────────────────────────────────────────────────────────────────────────────────
    def write(self, name: str, then: Then = None) -> None:
        """Write the files of an epoch, with the present state. If the disk does not take them, leave them out and note
        that in the log.

        This returns before the files are written, except if those of another state are still being written, or without
        ``export``.

        Args:
            name: the name of the files.
            then: called when they are on disk, perhaps by another thread.
        """
        self._raise()
        self._held = None
        if self._export is None:
            self._write_one(self._save, (name, then))
            return
        copied = self._copied()
        self._begin(copied, [(name, then)])

    def hold(self, names: Sequence[Names]) -> None:
        """Copy the present state for files that the first engine is writing now. ``write_held`` writes them. A further
        call forgets the copy. Without ``export`` nothing is held: the first engine writes such files at once."""
        self._raise()
        self._held = None
        if self._export is not None and names:
            self._held = (self._copied(), names)

    def write_held(self) -> None:
        """Write what is held, since this engine has become the first. Its predecessor may have written it, too."""
        held, self._held = self._held, None
        if held is not None:
            self._begin(*held)

    def wait_copied(self) -> None:
        """Wait until the copy of the present state is complete. Call this before the state changes.

        Raises:
            Exception: what went wrong in the thread that writes.
        """
        if self._present is not None:
            self._present.wait()
            self._present = None
        self._raise()

    def finish(self) -> None:
        """Wait until the files are on disk, or have been left out."""
        thread = self._thread
        if thread is not None:
            thread.join()
        self._raise()

    @property
    def under_way(self) -> bool:
        """Whether files are being written."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def _copied(self) -> _Copied:
        """Begin to copy the present state, or return the copy that has begun. There is memory for one copy: that of
        another state is written first."""
        assert self._export is not None
        if self._present is None:
            self.finish()
            self._present = _Copied(self._export())
        return self._present

    def _begin(self, copied: _Copied, names: Sequence[Names]) -> None:
        with self._lock:
            self._work.extend((copied, each) for each in names)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="user-files", daemon=True)
                self._thread.start()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._thread = None
                    return
                copied, names = self._work.popleft()
            try:
                self._write_one(copied.save(), names)
            except BaseException as error:
                self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write_one(self, save: Save, names: Names) -> None:
        name, then = names
        error = self._try(save, name)
        if error is not None:
            self._note(f"{name} is left out, since {self._folder} cannot be written: {self._room(error)}")
            return
        if self._keep_last is not None:
            self._forget_old(self._keep_last, name)
        if then is not None:
            then()

    def _forget_old(self, keep: int, name: str) -> None:
        """Remove the files of all epochs up to that of ``name`` but the newest ``keep``. The final files and the best
        ones stay, and so do those of later epochs, which another training may have left here."""
        written = re.fullmatch(r"model_epoch_(\d+)", name)
        if written is None:
            return
        of_epoch: dict[int, list[Path]] = {}
        for path in self._folder.glob("model_epoch_*"):
            if found := re.match(r"model_epoch_(\d+)(?!\d)", path.name):
                of_epoch.setdefault(int(found[1]), []).append(path)
        for epoch in sorted(epoch for epoch in of_epoch if epoch <= int(written[1]))[:-keep]:
            for path in of_epoch[epoch]:
                _remove(path)

    def write_final(self, name: str) -> None:
        """Write the files of the trained model. This returns when they are on disk: the training is over.

        Raises:
            NoRoom: the disk did not take the files for ``EDT_ROOM_SECONDS`` seconds.
        """
        self.finish()
        begun, patience = self._clock(), environment.room_seconds()
        error = self._try(self._save, name)
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
            error = self._try(self._save, name)
            if error is None:
                self._note(f"{name} is written, after {self._clock() - begun:.0f} s")

    def _try(self, save: Save, name: str) -> OSError | None:
        try:
            save(self._folder, name)
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


class _Copied:
    """A copy of a state, which a thread of its own makes.

    Args:
        copy: makes it.
    """

    def __init__(self, copy: Copy) -> None:
        self._copy: Copy | None = copy
        self._save: Save | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="user-files-copy", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the copy is complete, or has failed."""
        self._thread.join()

    def save(self) -> Save:
        """What writes the copy.

        Raises:
            BaseException: the copy has failed.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._save is not None
        return self._save

    def _run(self) -> None:
        copy, self._copy = self._copy, None
        assert copy is not None
        try:
            self._save = copy()
        except BaseException as error:
            self._error = error


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Give a path for a draft, a file or a folder, which replaces what is at ``path`` when the block ends.

    The draft is in the same folder as ``path``. Its name has the same ending, for writers that derive the format from
    the name. The draft is synced to the disk before it is put in place. If the block raises an error, ``path`` stays
    as it was, and the draft is removed.

    Raises:
        OSError: the disk did not take the draft, even if the writer raised another error for that.
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
        _sync_all(draft)
        if draft.is_dir():
            _put_folder(draft, path, path.with_name(_MOVED_AWAY + own))
        else:
            draft.replace(path)
    finally:
        _remove(draft)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed, and restore a folder that such a writer moved away but did not
    replace. Call this only while no engine writes, because a writer would lose its draft."""
    if not folder.is_dir():
        return
    for old in sorted(folder.glob(f"{_MOVED_AWAY}*"), key=lambda path: path.stat().st_mtime, reverse=True):
        found = re.fullmatch(re.escape(_MOVED_AWAY) + r"[0-9a-f]{8}-(.+)", old.name)
        if found and not (place := old.with_name(found[1])).exists():
            old.rename(place)
    for draft in list(folder.glob(f"{DRAFT_PREFIX}*")):
        _remove(draft)


def _put_folder(draft: Path, path: Path, old: Path) -> None:
    """Replace a folder. No system call replaces a folder that holds files, so the old one is moved away first."""
    for left in reversed(range(_TRIES)):
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
        try:
            draft.rename(path)
        except OSError as error:
            if left and error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another writer was faster
                shutil.rmtree(old, ignore_errors=True)
                continue
            with contextlib.suppress(OSError):  # there was no old folder, or another writer's is there by now
                old.rename(path)
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return


def _sync_all(path: Path) -> None:
    """Sync a file or a folder. Some disks report only here that they have no room."""
    for place in (*path.rglob("*"), path) if path.is_dir() else (path,):
        sync(place)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
