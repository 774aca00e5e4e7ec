"""Writing where a disk may be full: a piece is there whole or not at all, trouble is said once, and what could not be
written waits in memory until there is room. Room: runners; standard library only, since every room has such places.

``AppendFile`` writes, ``PatientLog`` holds what it could not write, ``Outage`` says when a place cannot be written and
when it can be again. Any error of a disk is treated alike: no room, no quota left, a fault of the device.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CANNOT_WRITE = 3
"""Exit status of a supervisor that could not write into its spool folder, so that nothing of its attempt began."""
MAY_PASS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})
"""What a disk says that somebody may mend while we wait."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""That it is full, or that this user's part of it is."""

_FALLOC_FL_KEEP_SIZE = 1
_TELL_AGAIN_SECONDS = 60.0
_HELD_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 12
_NOTHING_LEFT_BYTES = 1 << 14
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class News:
    """An outage has begun, or is over."""

    place: str
    error: str
    """What the disk says; "": the place can be written again."""
    seconds: float
    """How long it has lasted by now."""

    def __str__(self) -> str:
        if self.error:
            return f"{self.place} cannot be written: {self.error}"
        return f"{self.place} can be written again, after {self.seconds:.0f} s"


class Outage:
    """Whether one place can be written. The first failure of a row is told, and the first success after it.

    A place that fails and works in turns is told of once a minute at most.

    Args:
        place: as people know it.
        tell: hears the news.
        clock: monotonic seconds.
    """

    def __init__(
        self, place: str, tell: Callable[[News], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.place, self._tell, self._clock = place, tell, clock
        self._since: float | None = None
        self._told = False
        self._told_at: float | None = None

    @property
    def under_way(self) -> bool:
        """The last attempt to write has failed."""
        return self._since is not None

    def failed(self, error: OSError | str) -> None:
        """A write has failed."""
        now = self._clock()
        if self._since is None:
            self._since, self._told = now, False
        if not self._told and (self._told_at is None or now >= self._told_at + _TELL_AGAIN_SECONDS):
            self._told, self._told_at = True, now
            self._tell(News(self.place, reason(error), now - self._since))

    def worked(self) -> None:
        """A write has succeeded."""
        since, self._since = self._since, None
        if since is not None and self._told:
            self._tell(News(self.place, "", self._clock() - since))


def disk_error(error: BaseException, folder: Path) -> OSError | None:
    """What the disk of ``folder`` said when ``error`` came of writing there; None: it is not the disk that is to blame.

    Libraries raise errors of their own instead of the disk's, some without a word of it: then it counts whether there
    is any room left, so ask before what was written by half is removed.
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
    """Room for users on the disk of ``folder``; 0 also where it takes no more files; None: nobody knows."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize if facts.f_favail or not facts.f_files else 0


def reason(error: OSError | str) -> str:
    """What the disk says, without the path."""
    return error if isinstance(error, str) else error.strerror or str(error) or type(error).__name__


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

    def fileno(self) -> int:
        return self._handle

    def open(self) -> None:
        """Raises OSError."""
        if not self.is_open:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._handle = self._opener(self._path) if self._opener else os.open(self._path, flags, self._mode)
            self.size = os.fstat(self._handle).st_size

    def append(self, data: bytes, *, durable: bool = False) -> None:
        """Write all of ``data``; ``durable``: it is on the disk when this returns.

        Raises OSError; then nothing of it is in the file.
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
        self._reserved = 0  # what is cut off takes the room behind it along
        os.ftruncate(self._handle, self.size)
        self._torn = False

    def reserve(self, room: int) -> None:
        """Have the disk keep about so many bytes for what is appended next, where the file system can.

        Raises OSError where there is not so much room.
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
    """A log that no full disk can end. What cannot be written is held, and written before anything that comes later.

    Of what is more than ``most`` bytes the newest is lost, and a line in the log says how much.

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
