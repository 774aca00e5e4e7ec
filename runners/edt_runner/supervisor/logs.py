"""The output of a supervisor's children: it comes through pipes and goes into log files.

A child never waits for its log, and never gets an error from a full disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from edt_contract.durable import PatientLog
from edt_runner import environment
from edt_runner.supervisor import users

_READ_BYTES = 1 << 18


class LogPipe:
    """One output stream of one child, and its log file.

    A child never waits for its log, and never gets an error from a full disk.

    Args:
        path: the log file.
        limit: bytes at which the file is rotated: ``x.out`` becomes ``x.out.1``.
        keep: number of the last bytes of output that ``tail`` has.
    """

    def __init__(self, path: Path, limit: int, keep: int = 0) -> None:
        self.log = PatientLog(path, limit=limit, opener=_open_log, mover=_move_log)
        self.log.write(b"")  # makes the file, also if the child prints nothing
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.closed = False
        self._keep = keep
        self.tail = b""
        """The end of the output so far. The log file may also hold output of earlier processes."""

    def pump(self) -> bool:
        """Move the output that has arrived into the log; returns False at the end of the stream."""
        try:
            data = os.read(self.reader, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.log.write(data)
        if self._keep:
            self.tail = (self.tail + data)[-self._keep :]
        return True

    def catch_up(self) -> bool:
        """Move the output that has arrived into the log, but no more than the pipe holds: a process may write without
        end. Returns False at the end of the stream."""
        return all(self.pump() for _ in range(0, fcntl.fcntl(self.reader, fcntl.F_GETPIPE_SZ), _READ_BYTES))

    def close(self) -> None:
        """Close pipe and log. Processes that still write get SIGPIPE."""
        self.closed = True
        os.close(self.reader)
        self.log.close()


def open_pipes(log_dir: str, stem: str, keep: int = 0) -> list[LogPipe]:
    """The pipes for the standard output and error of a child that is forked next.

    Args:
        log_dir: the job's log folder.
        stem: the output goes to ``stem``.out and ``stem``.err in that folder.
        keep: number of the last bytes of each stream that are kept in memory.
    """
    limit = environment.log_limit_bytes()
    return [LogPipe(Path(log_dir) / f"{stem}.{stream}", limit, keep) for stream in ("out", "err")]


def follow(pipes: Iterable[LogPipe], selector: selectors.BaseSelector) -> None:
    """Let the selector read the pipes of a child that has just been forked."""
    for pipe in pipes:
        os.close(pipe.writer)
        selector.register(pipe.reader, selectors.EVENT_READ, _pump(pipe, selector))


def read_last(pipes: Collection[LogPipe], selector: selectors.BaseSelector) -> list[LogPipe]:
    """Read the last output of a child that is gone. Returns the pipes that processes of the child still hold. The
    selector goes on reading these until the end of the stream."""
    for pipe in pipes:
        if not pipe.closed and not pipe.catch_up():
            _close(pipe, selector)
    return [pipe for pipe in pipes if not pipe.closed]


def end(pipes: Collection[LogPipe], selector: selectors.BaseSelector) -> None:
    """Read the last output and close pipes and logs. This does not wait for processes that still hold the pipes."""
    for pipe in read_last(pipes, selector):
        _close(pipe, selector)


def _pump(pipe: LogPipe, selector: selectors.BaseSelector) -> Callable[[], None]:
    def pump() -> None:
        if not pipe.closed and not pipe.pump():
            _close(pipe, selector)

    return pump


def _close(pipe: LogPipe, selector: selectors.BaseSelector) -> None:
    with contextlib.suppress(KeyError):  # the selector has not read it yet
        selector.unregister(pipe.reader)
    pipe.close()


def _open_log(path: Path) -> int:
    """Open a log with the rights of the script's user, who owns the files in the job's folder. If the job has put a
    link there, the link is not followed; if it has put a pipe there, this does not wait for the pipe."""
    with users.as_script():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(path, flags, 0o666)


def _move_log(path: Path, to: Path) -> None:
    with users.as_script():
        path.replace(to)
