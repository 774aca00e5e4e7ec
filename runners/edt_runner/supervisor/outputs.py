"""What children print, into files of bounded size. Room: runners; files and pipes."""

from __future__ import annotations

import os
import select
from pathlib import Path

from edt_runner.supervisor import users


class LogPipe:
    """One stream of one child. At ``limit`` bytes the file is turned over: ``x.out`` becomes ``x.out.1``."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        with users.as_script():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
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
        try:
            if self._size + len(data) > self._limit:
                self._turn_over()
            self._file.write(data)
        except OSError:  # a full disk, a folder that is gone: what is printed is lost, the training is not
            return True
        self._size += len(data)
        return True

    def drain(self) -> None:
        """Take what is there and close: the child is gone, whoever inherited its end no longer counts."""
        while select.select([self.reader], [], [], 0)[0] and self.pump():
            pass
        os.close(self.reader)
        self._file.close()

    def _turn_over(self) -> None:
        self._file.close()
        with users.as_script():
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab", buffering=0)
        self._size = 0
