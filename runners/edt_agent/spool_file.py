"""Reads, appends to and cuts the file into which a supervisor writes its reports, one a line.

The supervisor appends to the file. The agent reads it, and appends to it only when the supervisor is gone. Under the
process launcher the job's own processes can write there too, and the agent may be root while the job is not. So the
agent opens only a regular file and follows no link, and it cuts off a line that is too long.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edt_agent.safe_files import OF_THE_JOB, open_regular
from edt_contract.durable import AppendFile, Outage, sync
from edt_contract.encoding import dump_line
from edt_contract.reports import LINE_BYTES, Report

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
"""If a line has more bytes than this, the line and all data after it are cut off."""


@dataclass(frozen=True)
class Place:
    """A place between two lines: the numbers of bytes and lines before it."""

    offset: int = 0
    lines: int = 0


class SpoolFile:
    """The report file of one supervisor.

    Args:
        path: the file.
        log_once: logs a sentence about the file, each sentence once.
    """

    def __init__(self, path: Path, log_once: Callable[[str], None]) -> None:
        self._path, self._log_once = path, log_once
        self._inode: int | None = None
        self._unwritten = b""
        """Reports of this agent that the disk has not accepted yet. ``lines`` yields them after the lines of the file.
        If this agent ends, the next agent makes them again."""
        self._outage = Outage(str(path), lambda news: log.warning("%s", news))

    @property
    def all_written(self) -> bool:
        """Whether the disk has accepted all reports that this agent appended."""
        return not self._unwritten

    def lines(self, place: Place) -> Iterator[tuple[bytes | None, Place]]:
        """Yield the complete lines after a place, each with the place after it. None stands for a line that is too long
        to be a report. A line that is still being written is left out."""
        size, rest = 0, b""
        try:
            with os.fdopen(open_regular(self._path, os.O_RDONLY, OF_THE_JOB), "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(place.offset)
                while chunk := stream.read(_CHUNK):
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        place = Place(place.offset + len(line) + 1, place.lines + 1)
                        yield (line if len(line) < LINE_BYTES else None), place
                    if len(rest) >= _CHUNK:
                        break
        except FileNotFoundError:
            pass  # the supervisor has not written yet
        except OSError as error:
            self._log_once(f"it cannot be read: {error.strerror}")
            return
        if len(rest) >= _CHUNK:
            if self.could_cut(place):
                self._log_once("a line without end was cut off")
            return
        for line in self._unwritten[max(0, place.offset - size) :].splitlines():
            place = Place(place.offset + len(line) + 1, place.lines + 1)
            yield line, place

    def replaced(self, read: Place) -> Place | None:
        """Check whether the file was replaced by another file, or is shorter than the part that was ``read``.

        Returns:
            The place from which to read: the beginning of another file, or the end of a shortened file. The numbers of
            lines continue. None: the file was neither replaced nor shortened.
        """
        try:
            handle = open_regular(self._path, os.O_RDONLY, OF_THE_JOB)
        except OSError:
            return None
        now = os.fstat(handle)
        os.close(handle)
        another = self._inode not in {None, now.st_ino}
        self._inode = now.st_ino
        if another or now.st_size + len(self._unwritten) < read.offset:
            return Place(0 if another else now.st_size, read.lines)
        return None

    def append(self, empty_lines: int, reports: Iterable[Report]) -> None:
        """Append empty lines and reports. If the disk does not accept them now, ``write`` appends them later."""
        self._unwritten += b"\n" * empty_lines + b"".join(map(dump_line, reports))
        self.write()

    def write(self) -> None:
        """Append the reports that were not written yet: all of them or none."""
        if not self._unwritten:
            return
        with self._outage.watching():
            self._path.parents[OF_THE_JOB - 1].mkdir(parents=True, exist_ok=True)
            with contextlib.closing(AppendFile(self._path, opener=_open_to_append)) as file:
                file.append(self._unwritten, durable=True)
            with contextlib.suppress(OSError):
                sync(self._path.parent)
            self._unwritten = b""

    def could_cut(self, place: Place) -> bool:
        """Drop all data after a place; returns False if the disk does not allow it."""
        try:
            self.cut(place)
        except OSError as error:
            self._log_once(f"it cannot be cut: {error.strerror}")
            return False
        return True

    def cut(self, place: Place) -> None:
        """Drop all data after a place.

        Raises:
            OSError: the disk does not allow it.
        """
        try:
            handle = open_regular(self._path, os.O_WRONLY, OF_THE_JOB)
        except FileNotFoundError:
            return
        try:
            if os.fstat(handle).st_size > place.offset:
                os.truncate(handle, place.offset)
        finally:
            os.close(handle)


def _open_to_append(path: Path) -> int:
    return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OF_THE_JOB)
