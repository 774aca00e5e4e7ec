"""What children print, into files of bounded size. Room: runners; files and pipes."""

from __future__ import annotations

import os
import select
from pathlib import Path

from edt_runner.storage import PatientLog
from edt_runner.supervisor import users


class LogPipe:
    """One stream of one child, and the log that it goes into. At ``limit`` bytes that is turned over: ``x.out`` becomes
    ``x.out.1``. A child never waits for its log, and never hears of a full disk."""

    def __init__(self, path: Path, limit: int) -> None:
        self.log = PatientLog(path, limit=limit, opener=_open, mover=_move)
        self.log.write(b"")  # there from the beginning, whether or not anything is printed
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def fileno(self) -> int:
        return self.reader

    def forked(self) -> None:
        """In the parent, once the child has its end."""
        os.close(self.writer)

    def pump(self) -> bool:
        """Move what has arrived; false at the end of the stream."""
        try:
            data = os.read(self.reader, 1 << 18)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.log.write(data)
        return True

    def drain(self) -> None:
        """Take what is there and close: the child is gone, whoever inherited its end no longer counts."""
        while select.select([self.reader], [], [], 0)[0] and self.pump():
            pass
        os.close(self.reader)
        self.log.close()


def _open(path: Path) -> int:
    """Of the script's user, as all that is in the job's folder. What the job may have put there is not followed, and
    not waited for."""
    with users.as_script():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(path, flags, 0o666)


def _move(path: Path, to: Path) -> None:
    with users.as_script():
        path.replace(to)
