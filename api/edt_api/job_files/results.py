"""Streams a job's model folder, and its files of TensorBoard, as a zip. Reads the job's folder.

Weights do not shrink when they are packed, so files are stored unpacked. So the length of the zip is known before the
first byte, and WMLA's clients read that length from a header. Each file's CRC follows its data. A file is sent with the
length that it had when the download began. If a file has become shorter meanwhile, the download breaks off, and the
client notices that.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from edt_api.errors import NoResult
from edt_api.job_files.files import Found, files, must_be_kept, open_file
from edt_contract.durable import DRAFT_PREFIX
from edt_scheduler.views import JobView

_CHUNK = 1 << 20
_BOARD = "tensorboard"
"""The folder beside the model's in which the driver writes the files of TensorBoard."""
_WIDE_FROM = _WIDE = 0xFFFFFFFF
"""Numbers from this value on are written to an extra field of 64 bits; this value then stands in their place."""
_MOST_NARROW = 0xFFFF
_FLAGS = 0x0808
"""Flags: sizes and CRC follow the data, and names are UTF-8."""
_UNIX = 3 << 8


class ResultChanged(RuntimeError):
    """A file became shorter or vanished while the zip was being sent."""


@dataclass(frozen=True)
class Result:
    """A zip that is about to be sent. The paths in the zip leave out the first component of ``Found.path``, except for
    the files of TensorBoard."""

    root: Path
    files: tuple[Found, ...]

    @property
    def size(self) -> int:
        """Size of the whole zip in bytes."""
        at = directory = 0
        for found in self.files:
            directory += len(_entry(self._name(found), found, 0, at))
            at += len(_local(self._name(found), found)) + found.size + len(_descriptor(0, found.size))
        return at + directory + len(_end(len(self.files), directory, at))

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the zip in pieces.

        Raises:
            ResultChanged: a file changed, so the zip cannot have the length ``size``.
        """
        at = 0
        directory: list[bytes] = []
        for found in self.files:
            before, crc = _local(self._name(found), found), 0
            yield before
            for chunk in self._data(found):
                crc = zlib.crc32(chunk, crc)
                yield chunk
            after = _descriptor(crc, found.size)
            yield after
            directory.append(_entry(self._name(found), found, crc, at))
            at += len(before) + found.size + len(after)
        yield from directory
        yield _end(len(directory), sum(map(len, directory)), at)

    def _name(self, found: Found) -> bytes:
        path = found.path if found.path[0] == _BOARD else found.path[1:]
        return "/".join(path).encode(errors="surrogateescape")

    def _data(self, found: Found) -> Iterator[bytes]:
        file = open_file(self.root, found.path)
        if file is None:
            raise ResultChanged("/".join(found.path))
        left = found.size
        with file:
            while left:
                chunk = file.read(min(left, _CHUNK))
                if not chunk:
                    raise ResultChanged("/".join(found.path))
                left -= len(chunk)
                yield chunk


def result(job: JobView) -> Result:
    """Return the zip of the files that ``model/`` holds now, with ``tensorboard/`` unless the model has a folder of
    that name itself.

    Raises:
        NoResult: the folder holds no files.
        ResultsRemoved: the job's files were removed because of their age.
    """
    must_be_kept(job)
    found = [file for file in files(job.directory, (job.model_dir.name,)) if not _is_draft(file)]
    if not found:
        raise NoResult(f"{job.exec_id} has saved nothing under RESULT_DIR/model yet")
    board = files(job.directory, (_BOARD,)) if not any(file.path[1] == _BOARD for file in found) else []
    return Result(job.directory, (*found, *board))


def _is_draft(file: Found) -> bool:
    """Whether the file is unfinished: an engine is writing it now, or was killed while it wrote the file."""
    return any(part.startswith(DRAFT_PREFIX) for part in file.path)


def disposition(job: JobView, size: int) -> str:
    """Return the header in the exact form that WMLA's clients expect: no blank after a semicolon, no quotes, ``size=``
    last.
    """
    name = f"dlpd-model-{int(job.created_at * 1e6)}-{job.number}{job.exec_id}-result.zip"
    return f"attachment;filename={name};size={size}"


def _local(name: bytes, found: Found) -> bytes:
    wide = found.size >= _WIDE_FROM
    extra = struct.pack("<2H2Q", 1, 16, 0, 0) if wide else b""
    sizes = (_WIDE, _WIDE) if wide else (0, 0)
    numbers = (_version(wide), _FLAGS, 0, *_dos_time(found), 0, *sizes, len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", *numbers) + name + extra


def _descriptor(crc: int, size: int) -> bytes:
    return struct.pack("<4sL2Q" if size >= _WIDE_FROM else "<4s3L", b"PK\x07\x08", crc, size, size)


def _entry(name: bytes, found: Found, crc: int, start: int) -> bytes:
    wide = [number for number in (found.size, found.size, start) if number >= _WIDE_FROM]
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size, start = _narrow(found.size), _narrow(start)
    mode = (0o100755 if found.executable else 0o100644) << 16
    version = _version(bool(wide))
    numbers = (_UNIX | version, version, _FLAGS, 0, *_dos_time(found), crc, size, size)
    return (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *numbers, len(name), len(extra), 0, 0, 0, mode, start) + name + extra
    )


def _end(count: int, length: int, at: int) -> bytes:
    wide = b""
    if count >= _MOST_NARROW or length >= _WIDE_FROM or at >= _WIDE_FROM:
        version = _version(True)
        wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, _UNIX | version, version, 0, 0, count, count, length, at)
        wide += struct.pack("<4sLQL", b"PK\x06\x07", 0, at + length, 1)
    counts = (min(count, _MOST_NARROW),) * 2
    return wide + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *counts, _narrow(length), _narrow(at), 0)


def _narrow(number: int) -> int:
    return _WIDE if number >= _WIDE_FROM else number


def _version(wide: bool) -> int:
    """Return the lowest version of the zip format that a reader must support, in tenths."""
    return 45 if wide else 20


def _dos_time(found: Found) -> tuple[int, int]:
    """Return time and date of a file in the format of zip, in UTC. Times before 1980 become the start of 1980."""
    when = time.gmtime(max(found.changed_at, 315532800))
    return (
        when.tm_hour << 11 | when.tm_min << 5 | when.tm_sec // 2,
        min(when.tm_year - 1980, 127) << 9 | when.tm_mon << 5 | when.tm_mday,
    )
