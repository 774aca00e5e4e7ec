"""Writes files on disks that may be full: each piece of data is written as a whole or not at all.

``write_whole`` replaces a file. ``AppendFile`` appends to a file. ``PatientLog`` keeps data in memory that the disk did
not accept. ``Outage`` reports once that a place cannot be written, and once that it can be written again. All errors of
a disk are treated in the same way: no room, no quota left, a fault of the device. All processes of OpenEDT use this
module.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

DRAFT_PREFIX = ".draft-"
"""Names of files and folders in the result folder begin with this while an engine or a driver writes them. The API does
not show such files to the user."""
CANNOT_WRITE = 3
"""Exit status of a supervisor that could not write into its spool folder. It has started nothing of its attempt."""
MAY_PASS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})
"""Errors of a disk that a person may repair while the process waits."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that mean that the disk is full or that this user's quota is used up."""
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
"""Errors of file systems that cannot sync a folder."""

_FALLOC_FL_KEEP_SIZE = 1
_REPORT_AGAIN_SECONDS = 60.0
_HELD_BYTES = 1 << 16
_DRAFT = ".draft"
"""Names of drafts end with this, so that ``sweep_drafts`` removes no other files."""
_LEFT_SECONDS = 86_400.0
_BLOCK_BYTES = 1 << 12
_NOTHING_LEFT_BYTES = 1 << 14
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class News:
    """The news that an outage has begun or is over."""

    place: str
    """Name of the place for people."""
    error: str
    """The disk's error; "": the place can be written again."""
    seconds: float
    """Seconds that the outage has lasted so far."""

    def __str__(self) -> str:
        if self.error:
            return f"{self.place} cannot be written: {self.error}"
        return f"{self.place} can be written again, after {self.seconds:.0f} s"


class Outage:
    """Keeps track of whether one place can be written. It reports the first failure in a row, and the first success
    after that.

    If the place fails and works in turns, failures are reported at most once a minute.

    Args:
        place: the place's name for people.
        report: called with the news.
        clock: monotonic seconds.
    """

    def __init__(
        self, place: str, report: Callable[[News], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.place, self._report, self._clock = place, report, clock
        self._since: float | None = None
        self._reported = False
        self._reported_at: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether the last attempt to write has failed."""
        return self._since is not None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note whether the block can write. An OSError ends the block and is not raised further."""
        try:
            yield
        except OSError as error:
            self.failed(error)
        else:
            self.worked()

    def failed(self, error: OSError | str) -> None:
        """Note that a write has failed."""
        now = self._clock()
        if self._since is None:
            self._since, self._reported = now, False
        if not self._reported and (self._reported_at is None or now >= self._reported_at + _REPORT_AGAIN_SECONDS):
            self._reported, self._reported_at = True, now
            self._report(News(self.place, reason(error), now - self._since))

    def worked(self) -> None:
        """Note that a write has succeeded."""
        since, self._since = self._since, None
        if since is not None and self._reported:
            self._report(News(self.place, "", self._clock() - since))


def disk_error(error: BaseException, folder: Path) -> OSError | None:
    """The disk's error that caused ``error``.

    Libraries raise their own errors in place of the disk's error, and some do not keep it as the cause. In that case
    the disk counts as full if it has no room left. So call this before half-written files are removed.

    Args:
        error: the error that was raised when something wrote into ``folder``.
        folder: the folder.

    Returns:
        The disk's error with the folder's path; None: the disk is not the cause.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in MAY_PASS:
            return OSError(found.errno, os.strerror(found.errno), str(folder))
        found = found.__cause__ or found.__context__
    free = free_bytes(folder)
    if free is not None and free < _NOTHING_LEFT_BYTES:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return None


def free_bytes(folder: Path) -> int | None:
    """Bytes that users may still write to the disk of ``folder``; 0 also if no inodes are left; None: unknown."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize if facts.f_favail or not facts.f_files else 0


def reason(error: OSError | str) -> str:
    """The text of a disk's error without the path."""
    return error if isinstance(error, str) else error.strerror or str(error) or type(error).__name__


def write_all(handle: int, data: bytes) -> None:
    """Write all of ``data`` to a descriptor. It may take several system calls, because one may write only a part.

    Raises:
        OSError: the data cannot be written.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk, so that it survives a power cut. A file system that cannot
    sync a folder is accepted.

    Raises:
        OSError: the disk does not accept the data.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait if a pipe lies there
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def draft_beside(
    path: Path, text: str, *, mode: int = 0o666, durable: bool = True, alone: bool = False
) -> Iterator[Path]:
    """Write ``text`` into a new file beside ``path``. The block renames this draft; a draft that the block does not
    rename is removed.

    Args:
        path: the file that the draft will become.
        text: the contents.
        mode: permissions of the new file.
        durable: whether the draft is synced to the disk before the block begins.
        alone: whether no other process, on any machine, writes ``path`` at the same time. If so, the draft has a fixed
            name and replaces a draft that a killed process has left. Otherwise the draft has a name of its own, and
            old drafts are swept. The draft also has a name of its own if the file of the fixed name cannot be removed.

    Yields:
        Path of the draft.

    Raises:
        OSError: the disk does not accept the draft.
    """
    draft = path.with_name(f".{path.name}{_DRAFT}")
    try:
        if alone:
            draft.unlink(missing_ok=True)
    except OSError:  # a folder, for instance
        alone = False
    if not alone:
        sweep_drafts(path.parent, path.name)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_DRAFT}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(handle, text.encode())
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sweep_drafts(folder: Path, name: str = "*") -> None:
    """Remove drafts that killed processes have left, if they are older than a day. Younger drafts stay, because
    processes may still use them, and clocks of machines may differ.

    Args:
        folder: the folder with the drafts.
        name: name of the file that they are drafts of; "*": any file.
    """
    for draft in folder.glob(f".{name}.{'[0-9a-f]' * 8}{_DRAFT}"):
        with contextlib.suppress(OSError):  # another process may have removed it
            if draft.lstat().st_mtime < time.time() - _LEFT_SECONDS:
                draft.unlink()


def write_whole(path: Path, text: str, *, mode: int = 0o666, durable: bool = True, alone: bool = False) -> None:
    """Replace a file atomically: a reader sees either the old or the new text, also after a power cut if ``durable``.
    The arguments are those of ``draft_beside``.

    Raises:
        OSError: the disk does not accept the file.
    """
    with draft_beside(path, text, mode=mode, durable=durable, alone=alone) as draft:
        draft.replace(path)
    if durable:
        sync(path.parent)


class AppendFile:
    """A file to which only this process appends. The first ``append`` opens it, or ``open``.

    Args:
        path: the file.
        mode: permissions of the file if it is made.
        opener: opens the file for appending and returns its descriptor; None: ``os.open`` is used.
    """

    def __init__(self, path: Path, mode: int = 0o644, opener: Callable[[Path], int] | None = None) -> None:
        self._path, self._mode, self._opener = path, mode, opener
        self._handle = -1
        self.size = 0
        """Size of the file in bytes, known once it is open."""
        self._reserved = 0
        self._reserves = True
        self._torn = False
        """The file may hold a part of data that could not be appended, behind ``size`` bytes."""

    @property
    def is_open(self) -> bool:
        return self._handle >= 0

    def open(self) -> None:
        """Open the file, if it is not open.

        Raises:
            OSError: the file cannot be opened.
        """
        if not self.is_open:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._handle = self._opener(self._path) if self._opener else os.open(self._path, flags, self._mode)
            self.size = os.fstat(self._handle).st_size

    def append(self, data: bytes, *, durable: bool = False) -> None:
        """Append all of ``data``. If ``durable``, the data are synced to the disk when this returns.

        Raises:
            OSError: the data cannot be written. A part that was written is cut off, now or before the next append.
        """
        self.open()
        if self._torn:
            self._cut()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            if durable:
                os.fsync(self._handle)
        except OSError:
            if len(rest) < len(data):
                self._torn = True
                with contextlib.suppress(OSError):  # if this fails, it is cut before the next append
                    self._cut()
            raise
        self.size += len(data)

    def _cut(self) -> None:
        self._reserved = 0  # cutting also frees the reserved room
        os.ftruncate(self._handle, self.size)
        self._torn = False

    def reserve(self, room: int) -> None:
        """Reserve disk space for the next appends, if the file system can do that. The file must be open.

        Args:
            room: bytes to reserve; up to 4 KiB fewer may already count as reserved.

        Raises:
            OSError: the disk does not have so much room.
        """
        if not self._reserves or self.size + room - _BLOCK_BYTES <= self._reserved:
            return
        end = self.size + room
        done = _libc.fallocate(
            self._handle, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(self.size), ctypes.c_int64(end - self.size)
        )
        number = ctypes.get_errno() if done else 0
        if number in NO_ROOM:
            raise OSError(number, os.strerror(number), str(self._path))
        self._reserves = not number
        self._reserved = end

    def close(self) -> None:
        """Close the file, and free reserved bytes that were not used."""
        if self.is_open:
            if self._reserved > self.size:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, self.size)
            os.close(self._handle)
            self._handle = -1


class PatientLog:
    """A log for disks that may be full. Data that cannot be written are held in memory, and written before all later
    data.

    When ``most`` bytes are held, further data are lost, and a line in the log gives the number of lost bytes.

    Args:
        path: the file.
        most: number of bytes that are held at most.
        limit: bytes at which the file is rotated: ``x.out`` becomes ``x.out.1``; None: never.
        mode: permissions of the file if it is made.
        opener: makes the folder, opens the file for appending and returns its descriptor; None: the default way.
        mover: moves the file when it is rotated.
    """

    def __init__(
        self,
        path: Path,
        *,
        most: int = _HELD_BYTES,
        limit: int | None = None,
        mode: int = 0o644,
        opener: Callable[[Path], int] | None = None,
        mover: Callable[[Path, Path], object] = Path.replace,
    ) -> None:
        self._path, self._most, self._limit, self._mode = path, most, limit, mode
        self._opener, self._mover = opener, mover
        self._file = AppendFile(path, mode, opener)
        self._held = bytearray()
        self.lost = 0
        """Number of bytes that were lost since the last line about lost bytes."""
        self.error: OSError | None = None
        """Why the last attempt to write failed; None: it did not fail."""

    @property
    def holds(self) -> bool:
        """Whether data, or the line about lost bytes, wait for room on the disk."""
        return bool(self._held) or self.lost > 0

    def write(self, data: bytes) -> None:
        """Append ``data`` now, or when there is room. Never raises OSError."""
        if self.holds and not self.flush():
            self._hold(data)
            return
        try:
            self._append(data)
            self.error = None
        except OSError as error:
            self.error = error
            self._hold(data)

    def flush(self) -> bool:
        """Write the held data; returns whether no data are held any more."""
        if not self.holds:
            return True
        gap = f"\n[edt: {self.lost} bytes are missing here: {reason(self.error or '')}]\n" if self.lost else ""
        try:
            self._append(bytes(self._held) + gap.encode())
        except OSError as error:
            self.error = error
            return False
        self._held.clear()
        self.lost, self.error = 0, None
        return True

    def close(self) -> None:
        """Try once more to write the held data, and close the file. Data that are still held are lost."""
        self.flush()
        self._file.close()

    def _hold(self, data: bytes) -> None:
        room = 0 if self.lost else max(0, self._most - len(self._held))  # after lost data no more are held
        self._held += data[:room]
        self.lost += len(data) - len(data[:room])

    def _append(self, data: bytes) -> None:
        if not self._file.is_open:  # only then: a folder that was moved away later is not made again
            if self._opener is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file.open()
        if self._limit is not None and self._file.size and self._file.size + len(data) > self._limit:
            self._mover(self._path, self._path.with_name(self._path.name + ".1"))
            self._file.close()
            self._file = AppendFile(self._path, self._mode, self._opener)
        self._file.append(data)
