"""What children print, into files of bounded size. Room: runners; files and pipes."""

from __future__ import annotations

import logging
import os
import select
from pathlib import Path
from typing import BinaryIO

from edt_runner.supervisor import users

_log = logging.getLogger(__name__)


class LogPipe:
    """One stream of one child. At ``limit`` bytes the file is turned over: ``x.out`` becomes ``x.out.1``."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._file, self._size = self._opened()
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
        with users.as_script():
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._file.close()
        self._file, self._size = self._opened()

    def _opened(self) -> tuple[BinaryIO, int]:
        """The file and its size. Where the job has put something else, or nothing can be opened, all is lost that the
        child prints, and nothing besides."""
        try:
            with users.as_script():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                if self._path.is_symlink():
                    self._path.unlink()
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                handle = os.open(self._path, flags, 0o666)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error.strerror)
            handle = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return os.fdopen(handle, "ab", buffering=0), os.fstat(handle).st_size
