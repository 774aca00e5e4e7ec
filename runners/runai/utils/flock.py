"""A lock file between processes."""

from __future__ import annotations

import fcntl
import os


class Flock:
    """A context that only one process of this machine at a time can be in, for each ``path``.

    Args:
        path: the lock file, which is created if needed and stays afterwards.

    Raises:
        OSError: the file cannot be opened or locked.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._file = path, -1

    def __enter__(self) -> Flock:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            os.close(file)
            raise
        self._file = file
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)  # this also unlocks the file
