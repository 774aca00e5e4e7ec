"""Writing files where the disk may be full: each piece is written whole or not at all.

``write_whole`` replaces a file, ``AppendFile`` appends, ``PatientLog`` holds in memory what could not be written, and
``Outage`` reports once that a place cannot be written and once that it can be written again. All errors of a disk are
treated alike: no room, no quota left, a fault of the device. Every process of ours uses it.
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
"""The names of files and folders begin with this while they are being written beside what a user will take away.
An engine or a driver writes them; the API does not show them."""
CANNOT_WRITE = 3
"""Exit status of a supervisor that could not write into its spool folder, so that nothing of its attempt began."""
MAY_PASS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})
"""Errors of a disk that a person may repair while the process waits."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Those that mean: the disk is full, or this user's quota is used up."""
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
"""Some file systems answer so when a folder is to be synced."""

_FALLOC_FL_KEEP_SIZE = 1
_REPORT_AGAIN_SECONDS = 60.0
_HELD_BYTES = 1 << 16
_DRAFT = ".draft"
"""How the names of drafts end, so that sweeping takes nothing else."""
_LEFT_SECONDS = 86_400.0
_BLOCK_BYTES = 1 << 12
_NOTHING_LEFT_BYTES = 1 << 14
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class News:
    """An outage has begun, or is over."""

    place: str
    error: str
    """The disk's error; "": the place can be written again."""
    seconds: float
    """How long it has lasted."""

    def __str__(self) -> str:
        if self.error:
            return f"{self.place} cannot be written: {self.error}"
        return f"{self.place} can be written again, after {self.seconds:.0f} s"


class Outage:
    """Whether one place can be written. The first failure in a row is reported, and the first success after it.

    A place that fails and works in turns is reported at most once a minute.

    Args:
        place: its name for people.
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
        """The last attempt to write has failed."""
        return self._since is not None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Take in whether the block can write. An OSError ends the block and goes no further."""
        try:
            yield
        except OSError as error:
            self.failed(error)
        else:
            self.worked()

    def failed(self, error: OSError | str) -> None:
        """A write has failed."""
        now = self._clock()
        if self._since is None:
            self._since, self._reported = now, False
        if not self._reported and (self._reported_at is None or now >= self._reported_at + _REPORT_AGAIN_SECONDS):
            self._reported, self._reported_at = True, now
            self._report(News(self.place, reason(error), now - self._since))

    def worked(self) -> None:
        """A write has succeeded."""
        since, self._since = self._since, None
        if since is not None and self._reported:
            self._report(News(self.place, "", self._clock() - since))


def disk_error(error: BaseException, folder: Path) -> OSError | None:
    """The disk's error of which ``error`` came when something wrote into ``folder``; None: the disk is not the cause.

    Libraries raise errors of their own instead of the disk's, some without naming it. Then the disk counts as full if
    it has no room left, so call this before removing what was half written.
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
    """Bytes that users may still write on the disk of ``folder``; 0 also if it has no inodes left; None: unknown."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize if facts.f_favail or not facts.f_files else 0


def reason(error: OSError | str) -> str:
    """The disk's error without the path."""
    return error if isinstance(error, str) else error.strerror or str(error) or type(error).__name__


def write_all(handle: int, data: bytes) -> None:
    """Write all of ``data``. One system call may write a part of it only."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, survive a power cut, where the file system can do that.

    Raises:
        OSError: the disk does not take it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in its place keeps nobody waiting
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
    """A new file beside ``path`` that holds ``text``, to be renamed in the block; what is left of it then is removed.

    Args:
        path: the file that the draft is to become.
        text: what it holds.
        mode: of the new file.
        durable: it is on the disk before it is renamed.
        alone: no other process, on no other machine, writes ``path`` at the same time. The draft takes the place of one
            that a killed process has left. Otherwise it has a name of its own, and such drafts are swept; so it has
            where something stands in that place that cannot be removed.

    Raises:
        OSError: the disk does not take it.
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
    """Remove the drafts of the file ``name``, or of all files of a folder, that killed processes have left. Another
    machine's clock may differ, so only those of a day ago count."""
    for draft in folder.glob(f".{name}.{'[0-9a-f]' * 8}{_DRAFT}"):
        with contextlib.suppress(OSError):  # another one sweeps, too
            if draft.lstat().st_mtime < time.time() - _LEFT_SECONDS:
                draft.unlink()


def write_whole(path: Path, text: str, *, mode: int = 0o666, durable: bool = True, alone: bool = False) -> None:
    """Replace a file at once: a reader sees the old text or the new, also after a power cut if ``durable``. The
    arguments are those of ``draft_beside``.

    Raises:
        OSError: the disk does not take it.
    """
    with draft_beside(path, text, mode=mode, durable=durable, alone=alone) as draft:
        draft.replace(path)
    if durable:
        sync(path.parent)


class AppendFile:
    """A file to which this process alone appends. It is opened by the first ``append``, or by ``open``."""

    def __init__(self, path: Path, mode: int = 0o644, opener: Callable[[Path], int] | None = None) -> None:
        self._path, self._mode, self._opener = path, mode, opener
        self._handle = -1
        self.size = 0
        """Bytes that are in it, once it is open."""
        self._reserved = 0
        self._reserves = True
        self._torn = False
        """A part of what could not be appended may be left behind ``size``."""

    @property
    def is_open(self) -> bool:
        return self._handle >= 0

    def open(self) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
        """
        if not self.is_open:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._handle = self._opener(self._path) if self._opener else os.open(self._path, flags, self._mode)
            self.size = os.fstat(self._handle).st_size

    def append(self, data: bytes, *, durable: bool = False) -> None:
        """Write all of ``data``; ``durable``: it is on the disk when this returns.

        Raises:
            OSError: it cannot be written, and nothing of it is in the file.
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
                with contextlib.suppress(OSError):  # then before the next one
                    self._cut()
            raise
        self.size += len(data)

    def _cut(self) -> None:
        self._reserved = 0  # cutting also frees the reserved room
        os.ftruncate(self._handle, self.size)
        self._torn = False

    def reserve(self, room: int) -> None:
        """Have the disk keep about so many bytes for what is appended next, where the file system can.

        Raises:
            OSError: there is not so much room.
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
        """Room that was reserved and not used is given back."""
        if self.is_open:
            if self._reserved > self.size:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, self.size)
            os.close(self._handle)
            self._handle = -1


class PatientLog:
    """A log that survives a full disk: what cannot be written is held, and written before anything that comes later.

    When more than ``most`` bytes are held, the newest are lost, and a line in the log says how many.

    Args:
        path: the file.
        most: bytes that are held.
        limit: bytes at which the file is turned over: ``x.out`` becomes ``x.out.1``; None: never.
        mode: of a file that is made.
        opener, mover: how it is opened to append, its folder made, and how it is moved, where that asks for more.
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
        """Bytes that were given up since the last line that said so."""
        self.error: OSError | None = None
        """Why the last attempt to write failed; None: it did not."""

    @property
    def holds(self) -> bool:
        """Something waits for room."""
        return bool(self._held) or self.lost > 0

    def write(self, data: bytes) -> None:
        """Append it now or when there is room. Never raises OSError."""
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
        """Write what is held; whether nothing is any more."""
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
        """What is still held is lost, unless there is room just now."""
        self.flush()
        self._file.close()

    def _hold(self, data: bytes) -> None:
        room = 0 if self.lost else max(0, self._most - len(self._held))  # nothing follows what is missing
        self._held += data[:room]
        self.lost += len(data) - len(data[:room])

    def _append(self, data: bytes) -> None:
        if not self._file.is_open:  # else a folder that was taken away stays away
            if self._opener is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file.open()
        if self._limit is not None and self._file.size and self._file.size + len(data) > self._limit:
            self._mover(self._path, self._path.with_name(self._path.name + ".1"))
            self._file.close()
            self._file = AppendFile(self._path, self._mode, self._opener)
        self._file.append(data)
