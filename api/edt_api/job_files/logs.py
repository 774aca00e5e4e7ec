"""A job's log in the forms that WMLA's ``logType`` names. Reads the job's log folder.

    none           the ELog lines, ``log/stdout``, which notebooks read as CSV; what the script printed if the job's
                   framework says so, or if it is a gang that has written no ELog lines
    outlog         the script's standard output
    errlog         the script's standard error, with its traceback; if nothing is there, why the job ended
    outerrlog      the ELog lines, then the script's standard output, then errlog; of a gang, only the last two

WMLA knows no other; beside these, the log that people read is ``log/training.log``.

The script's output and errors are those of the driver. A gang has no driver: there they are those of rank 0.

A log may have gigabytes, so it is streamed, up to the length that it had when it was requested. The last lines of a
file are found from its end.
"""

from __future__ import annotations

import codecs
import enum
import heapq
import json
import os
import re
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import BinaryIO

from edt_api.errors import RequestInvalid
from edt_api.job_files.files import files, must_be_kept, open_file
from edt_api.schemas.jobs import LogFile
from edt_scheduler.model.jobs import DefaultLog
from edt_scheduler.views import EngineView, JobView

_CHUNK = 64 * 1024


class Stream(enum.StrEnum):
    """One file of a job's log. Each file only grows until it is rotated at its size limit."""

    TRAINING = "training"  # the course of the training, for people
    ELOG = "elog"  # the lines of the loggers, for WMLA's tools
    OUT = "out"  # the script's standard output
    ERR = "err"  # the script's standard error


_FILES = {
    Stream.TRAINING: "training.log",
    Stream.ELOG: "stdout",
    Stream.OUT: "driver.out",
    Stream.ERR: "driver.err",
}
_OF_RANK_0 = {**_FILES, Stream.OUT: "rank-0.out", Stream.ERR: "rank-0.err"}
"""The same of a gang."""
_PROCESS = re.compile(r"(engine|rank)-(0|[1-9][0-9]{0,17})\.(out|err)")
"""Files of an engine, or of a gang's process. Their names are also the names of their streams."""
_STREAMS = {name: stream.value for stream, name in _FILES.items()}
_TURNED_OVER = ".1"
"""Suffix that the supervisor adds to the name of a file that has reached its size limit."""
_LOG_TYPES = {
    "outlog": (Stream.OUT,),
    "errlog": (Stream.ERR,),
    "outerrlog": (Stream.ELOG, Stream.OUT, Stream.ERR),
}


def text(job: JobView, log_type: str, last: int | None = None) -> Generator[str, None, None]:
    """Return the log in pieces; with ``last`` only so many lines at the end of each of its files.

    Raises:
        RequestInvalid: the log type is unknown. Raised before the first piece.
        ResultsRemoved: the job's files were removed because of their age.
    """
    must_be_kept(job)
    streams = _LOG_TYPES.get(log_type) if log_type else (_usual(job),)
    if streams is None:
        raise RequestInvalid(f"logType: got {log_type[:64]!r}; it takes {', '.join(_LOG_TYPES)}, or nothing")
    if job.gang is not None and len(streams) > 1:
        streams = (Stream.OUT, Stream.ERR)
    return _pieces(job, streams, last)


def _usual(job: JobView) -> Stream:
    """Return the stream for clients that name none."""
    if job.default_log is DefaultLog.OUTPUT:
        return Stream.OUT
    if job.gang is None:
        return Stream.ELOG
    elog = open_file(job.directory, (job.log_dir.name, _file_of(job, Stream.ELOG)))
    if elog is None:
        return Stream.OUT
    with elog:
        return Stream.ELOG if os.fstat(elog.fileno()).st_size else Stream.OUT


def of_driver(job: JobView, stream: Stream, last: int | None = None) -> Generator[str, None, None]:
    """Return one stream of the driver, or of a gang's rank 0, in pieces; with ``last`` only so many lines at its end.

    Raises:
        ResultsRemoved: the job's files were removed because of their age. Raised before the first piece.
    """
    must_be_kept(job)
    return _pieces(job, (stream,), last)


def of_process(job: JobView, engine: EngineView, stream: Stream, last: int | None = None) -> Generator[str, None, None]:
    """Return the output (Stream.OUT) or the errors (Stream.ERR) of one engine, or of one process of a gang, as
    ``of_driver`` does.

    Args:
        job: the job.
        engine: the engine or process.
        stream: Stream.OUT or Stream.ERR.
        last: the most lines.
    """
    must_be_kept(job)
    name = f"engine-{engine.held.allocation}" if engine.rank is None else f"rank-{engine.rank}"
    return _file(job, f"{name}.{stream}", last)


def as_json(pieces: Iterable[str]) -> Generator[str, None, None]:
    """Yield the pieces as one JSON string, for clients that ask for ``application/json``."""
    yield '"'
    for piece in pieces:
        yield json.dumps(piece)[1:-1]
    yield '"'


def listing(job: JobView, *, limit: int, after: int = 0) -> list[LogFile]:
    """Return at most ``limit`` of the log's files, in the order of their ``place``, after the place ``after``.

    Raises:
        ResultsRemoved: the job's files were removed because of their age.
    """
    must_be_kept(job)
    there = (found for found in files(job.directory, (job.log_dir.name,)) if len(found.path) == 2)
    known = (
        LogFile(stream=stream, bytes=found.size)
        for found in there
        if (stream := _stream_of(found.path[-1])) is not None and place(stream) > after
    )
    return heapq.nsmallest(limit, known, key=lambda file: place(file.stream))


def place(stream: str) -> int:
    """Return the place of a stream in the list, from 1 on: first the driver's streams, then each engine's or rank's by
    its number.
    """
    process = _PROCESS.fullmatch(stream)
    if process is None:
        return list(Stream).index(Stream(stream)) + 1
    return len(Stream) + 1 + 4 * int(process[2]) + 2 * (process[1] == "rank") + (process[3] == "err")


def _stream_of(name: str) -> str | None:
    """Return the stream whose file in the log folder has this name; None if there is none."""
    return name if _PROCESS.fullmatch(name) else _STREAMS.get(name)


def _file_of(job: JobView, stream: str) -> str:
    """Return the name of a stream's file in the log folder. ``out`` and ``err`` of a gang are those of its rank 0.

    Raises:
        RequestInvalid: there is no such stream.
    """
    if _PROCESS.fullmatch(stream):
        return stream
    try:
        return (_FILES if job.gang is None else _OF_RANK_0)[Stream(stream)]
    except ValueError:
        others = "an engine's, engine-<number>.out, or a rank's of a gang, rank-<number>.out"
        raise RequestInvalid(f"stream: got {stream!r}; it takes {', '.join(Stream)}, {others}") from None


def path(job: JobView, stream: str) -> Path:
    """Return where a stream's file is, or will be.

    Raises:
        RequestInvalid: there is no such stream.
    """
    return job.directory / job.log_dir.name / _file_of(job, stream)


def since(job: JobView, stream: str, offset: int, most: int) -> tuple[bytes, int]:
    """Return at most ``most`` bytes of one file from ``offset`` on.

    A file that is shorter than ``offset`` was rotated at its size limit. The follower then gets the rest of the old
    file and continues at the beginning of the new one.

    Returns:
        The bytes, empty if there are no more yet, and the offset after them.

    Raises:
        RequestInvalid: there is no such stream.
        ResultsRemoved: the job's files were removed because of their age.
    """
    must_be_kept(job)
    name = _file_of(job, stream)
    data, size = _slice(job, name, offset, most)
    if size is None or size >= offset:
        return data, offset + len(data)
    rest, whole = _slice(job, f"{name}{_TURNED_OVER}", offset, most)
    if rest:
        after = offset + len(rest)
        return rest, after if whole is not None and after < whole else 0
    data, _ = _slice(job, name, 0, most)
    return data, len(data)


def _slice(job: JobView, name: str, offset: int, most: int) -> tuple[bytes, int | None]:
    """Return a part of a log file and the length of the file in bytes; the length is None if the file is missing."""
    file = open_file(job.directory, (job.log_dir.name, name))
    if file is None:
        return b"", None
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        return file.read(most), size


def _pieces(job: JobView, streams: Iterable[Stream], last: int | None) -> Generator[str, None, None]:
    for stream in streams:
        empty = True
        for piece in _file(job, _file_of(job, stream), last):
            empty = empty and not piece
            yield piece
        if stream is Stream.ERR and empty and job.message:
            yield f"{job.message}\n"


def _file(job: JobView, name: str, last: int | None) -> Generator[str, None, None]:
    file = open_file(job.directory, (job.log_dir.name, name))
    if file is None:
        return
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with file:
        left = os.fstat(file.fileno()).st_size
        if last is not None:
            left -= file.seek(_begin_of_last(file, left, last))
        while left and (chunk := file.read(min(left, _CHUNK))):
            left -= len(chunk)
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)


def _begin_of_last(file: BinaryIO, size: int, lines: int) -> int:
    """Return the offset of the last ``lines`` lines among the first ``size`` bytes of a file.

    It reads backwards from the end, no further than those lines. The end of the last line does not count.
    """
    position, missing = size, lines + 1
    while position:
        before = max(0, position - _CHUNK)
        file.seek(before)
        chunk = file.read(position - before)
        if position == size and not chunk.endswith(b"\n"):
            missing -= 1
        found = chunk.count(b"\n")
        if found >= missing:
            end = len(chunk)
            for _ in range(missing):
                end = chunk.rindex(b"\n", 0, end)
            return before + end + 1
        missing -= found
        position = before
    return 0
