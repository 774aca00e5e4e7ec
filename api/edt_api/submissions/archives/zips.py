"""Reads zip files: ``zipfile`` with limits around it. Pure apart from reading the file.

When ``zipfile`` opens a zip, it reads the whole directory at the end and makes an object for each entry. So this module
checks the length of the directory and the number of its entries before that. The directory must have as many entries as
it declares. Entries must not overlap, and the zip must end where the file ends. ``zipfile`` checks the CRC-32 of each
file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from stat import S_IFDIR, S_IFMT, S_IFREG
from typing import Any, BinaryIO, cast

from edt_api.errors import ArchiveRefused, TooLarge
from edt_api.submissions.archives.tree import Limits, Tree

_CHUNK = 64 * 1024
_ENTRY = b"PK\x01\x02"
_END = struct.Struct("<4s4H2LH")
_MANY = 0xFFFF
"""This number of entries means that a separate 64-bit record holds the real number."""
_LENGTHS_AT = 26
"""Offset in a local header of the lengths of name and extra field, which are its last four bytes."""
_ENCRYPTED, _UTF8 = 0x1, 0x800
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_UNIX = {3, 19}
"""Systems whose entries hold a file's mode: Unix (3) and macOS (19)."""
_BROKEN = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error, zlib.error)
"""The errors of ``zipfile`` for a zip that is cut, broken or of an unsupported kind."""


def extract(file: BinaryIO, size: int, tree: Tree, limits: Limits) -> None:
    """Write all members into ``tree``.

    Raises:
        ArchiveRefused: the zip is cut or broken, or a member is not allowed; the error names that member.
        TooLarge: the zip exceeds a limit.
    """
    guard = _Guard(file, size, limits)
    with _refusing_broken():
        archive = zipfile.ZipFile(cast(BinaryIO, guard))
        guard.opened = True
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        _check_end(file, size, archive)
    end = 0
    for entry in entries:
        name = _name(entry)
        _check(entry, name)
        if entry.header_offset < end:
            raise ArchiveRefused("it is broken: it overlaps another one", name)
        with _refusing_broken(name):
            archive.open(entry).close()  # raises if its local header does not agree with the directory
            end = _data_end(file, entry)
        if name.endswith("/"):
            tree.folder(name)
        else:
            tree.write(name, _data(archive, entry, name), executable=bool(_mode(entry) & 0o111))


class _Guard:
    """The upload as ``zipfile`` sees it. Seeks stay inside the file, and directories beyond the limits are not read."""

    def __init__(self, file: BinaryIO, size: int, limits: Limits) -> None:
        self._file, self._size, self._limits = file, size, limits
        self.opened = False
        """Whether ``zipfile`` has read the directory. It reads only members from then on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0 and not 0 <= offset <= self._size:
            raise zipfile.BadZipFile("a header of the zip lies outside it")
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if self.opened:
            return self._file.read(size)
        if size > self._limits.directory_bytes:
            raise TooLarge(f"the zip's directory has {size} bytes: at most {self._limits.directory_bytes} are taken")
        data = self._file.read(size)
        # Each entry begins with this mark, and no sensible name holds it. Other data, which ``zipfile`` reads in search
        # of the end, may hold some marks too.
        if data.startswith(_ENTRY) and data.count(_ENTRY) > self._limits.members:
            raise TooLarge(f"the upload holds too many files: at most {self._limits.members} are taken")
        return data


@contextmanager
def _refusing_broken(name: str = "") -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ArchiveRefused(f"it is broken: {error}", name) from None


def _check_end(file: BinaryIO, size: int, archive: zipfile.ZipFile) -> None:
    """Refuse what ``zipfile`` accepts: data after the zip, and entries that are lost because of a wrong length."""
    file.seek(max(0, size - _END.size - len(archive.comment)))
    record = file.read(_END.size)
    if len(record) < _END.size or not record.startswith(b"PK\x05\x06"):
        raise ArchiveRefused("it is broken: something follows its end")
    if (count := _END.unpack(record)[4]) not in {len(archive.infolist()), _MANY}:
        raise ArchiveRefused(f"it is broken: its directory has {len(archive.infolist())} entries, and declares {count}")


def _check(entry: zipfile.ZipInfo, name: str) -> None:
    if S_IFMT(_mode(entry)) not in {0, S_IFREG, S_IFDIR}:
        raise ArchiveRefused("it is a link or a device; only files and folders are taken", name)
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveRefused("it is encrypted", name)
    if entry.compress_type not in _METHODS:
        raise ArchiveRefused(f"it is packed by method {entry.compress_type}; only plain and deflate are taken", name)


def _mode(entry: zipfile.ZipInfo) -> int:
    return entry.external_attr >> 16 if entry.create_system in _UNIX else 0


def _name(entry: zipfile.ZipInfo) -> str:
    """Return the name of an entry: UTF-8, with or without the flag for it; otherwise as DOS encoded it (cp437).

    ``orig_filename`` is the whole name, while ``filename`` ends before a NUL.
    """
    if entry.flag_bits & _UTF8:
        return entry.orig_filename
    try:
        return entry.orig_filename.encode("cp437").decode()
    except UnicodeDecodeError:
        return entry.orig_filename


def _data(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    with _refusing_broken(name), archive.open(entry) as member:
        while chunk := member.read(_CHUNK):
            yield chunk


def _data_end(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """Return where the data of an entry ends, by its local header.

    The extra field of a local header may have another length than the one in the directory.
    """
    file.seek(entry.header_offset + _LENGTHS_AT)
    lengths: int = sum(struct.unpack("<2H", file.read(4)))
    return entry.header_offset + _LENGTHS_AT + 4 + lengths + entry.compress_size
