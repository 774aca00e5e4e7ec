"""Reading zip, strictly. Room: api. Pure but for reading the file.

The directory at the end is the truth, and every byte before it must agree: entries lie side by side without
overlapping, each local header bears the directory's name, each file has the told length and CRC-32.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from edt_api.archives.tree import Tree
from edt_api.errors import ArchiveRefused, TooLarge

_CHUNK = 64 * 1024
_END = struct.Struct("<4s4H2LH")
_END64_AT = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MOST_ENTRIES = 200_000
"""Whatever the limits say: each takes memory before the first is written."""
_FARTHEST = 1 << 62
"""Places beyond cannot even be sought."""
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _UTF8 = 0x1, 0x800
_STORED, _DEFLATED = 0, 8
_UNIX = {3, 19}
"""Systems whose entries tell a file's mode: Unix, and macOS by its own number."""


@dataclass(frozen=True)
class _Entry:
    raw_name: bytes
    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    mode: int
    offset: int


def extract(file: BinaryIO, size: int, tree: Tree) -> None:
    """Write all members into ``tree``. Raises ArchiveRefused, which names the member where there is one."""
    entries, directory_at = _directory(file, size)
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        start = _data_at(file, entry)
        if entry.offset < end or start + entry.packed > directory_at:
            raise ArchiveRefused("it is broken: it overlaps another one", entry.name)
        end = start + entry.packed
        kind = stat.S_IFMT(entry.mode)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise ArchiveRefused("it is a link or a device; only files and folders are taken", entry.name)
        is_folder = entry.name.endswith("/")
        if (kind and is_folder != (kind == stat.S_IFDIR)) or (is_folder and entry.size):
            raise ArchiveRefused(
                "it is broken: a file by its name and a folder by its mode, or the reverse", entry.name
            )
        if is_folder:
            tree.folder(entry.name)
        else:
            tree.write(entry.name, _data(file, entry, start), executable=bool(entry.mode & 0o111))


def _directory(file: BinaryIO, size: int) -> tuple[list[_Entry], int]:
    """The entries as the directory tells them, and where it begins."""
    count, length, at, end = _end(file, size)
    if at + length != end:
        raise ArchiveRefused("it is cut or broken: the zip directory is not where it should be")
    if count > _MOST_ENTRIES:
        raise TooLarge(f"the upload holds {count} files: at most {_MOST_ENTRIES} are taken")
    file.seek(at)
    entries = [_entry(file) for _ in range(count)]
    if file.tell() != end:
        raise ArchiveRefused("it is broken: the zip directory has another length than told")
    return entries, at


def _end(file: BinaryIO, size: int) -> tuple[int, int, int, int]:
    """Number of entries, length and place of the directory, and where what ends it begins."""
    tail_at = max(0, size - _END.size - _FULL16)
    file.seek(tail_at)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        if len(tail) - at >= _END.size:
            _, disk, first_disk, here, count, length, place, comment = _END.unpack_from(tail, at)
            if at + _END.size + comment == len(tail) and disk == first_disk == 0 and here == count:
                end = tail_at + at
                if count == _FULL16 or _FULL32 in {length, place}:
                    return _end64(file, end)
                return count, length, place, end
        at = tail.rfind(b"PK\x05\x06", 0, at)
    raise ArchiveRefused("it is cut short: the zip directory at its end is missing")


def _end64(file: BinaryIO, end: int) -> tuple[int, int, int, int]:
    locator_at = end - _END64_AT.size
    _, at, _ = _fields(file, b"PK\x06\x07", _END64_AT, locator_at)
    _, _, _, disk, first_disk, here, count, length, place = _fields(file, b"PK\x06\x06", _END64, at)
    if disk or first_disk or here != count:
        raise ArchiveRefused("it is broken: the zip directory is not where it should be")
    return count, length, place, at


def _entry(file: BinaryIO) -> _Entry:
    fields = _fields(file, b"PK\x01\x02", _ENTRY)
    made_by, _, flags, method, _, _, crc, packed, size, name_length, extra_length = fields[:11]
    comment_length, disk, _, attributes, offset = fields[11:]
    if disk:
        raise ArchiveRefused("it is one of several parts; send it in one")
    raw_name, extra = _exactly(file, name_length), _exactly(file, extra_length)
    _exactly(file, comment_length)
    if _FULL32 in {packed, size, offset}:
        size, packed, offset = _wide(extra, size, packed, offset)
    mode = attributes >> 16 if made_by >> 8 in _UNIX else 0
    return _Entry(raw_name, _name(raw_name, flags), flags, method, crc, packed, size, mode, offset)


def _wide(extra: bytes, *narrow: int) -> tuple[int, ...]:
    """The numbers that 32 bits cannot hold, from the extra field that has them in the same order."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
            return tuple(next(wide, number) if number == _FULL32 else number for number in narrow)
        at += 4 + length
    return narrow


def _name(raw: bytes, flags: int) -> str:
    """UTF-8, said or not; else what DOS wrote."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if flags & _UTF8:
            raise ArchiveRefused("its name is not UTF-8", raw.decode(errors="replace")) from None
        return raw.decode("cp437")


def _data_at(file: BinaryIO, entry: _Entry) -> int:
    """Where an entry's data begins, by its local header, which must agree with the directory."""
    _, flags, method, *_, name_length, extra_length = _fields(file, b"PK\x03\x04", _LOCAL, entry.offset)
    if _exactly(file, name_length) != entry.raw_name or method != entry.method:
        raise ArchiveRefused("it is broken: header and directory disagree", entry.name)
    if (flags | entry.flags) & _ENCRYPTED:
        raise ArchiveRefused("it is encrypted", entry.name)
    if method not in {_STORED, _DEFLATED}:
        raise ArchiveRefused(f"it is packed by method {method}; only plain and deflate are taken", entry.name)
    return entry.offset + _LOCAL.size + name_length + extra_length


def _data(file: BinaryIO, entry: _Entry, start: int) -> Iterator[bytes]:
    """What the entry holds, its length and CRC found right at the end."""
    crc = size = 0
    for chunk in (_inflated if entry.method == _DEFLATED else _stored)(file, entry, start):
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
        yield chunk
    if crc != entry.crc or size != entry.size:
        raise ArchiveRefused("it is broken: its length or CRC is another than told", entry.name)


def _stored(file: BinaryIO, entry: _Entry, start: int) -> Iterator[bytes]:
    file.seek(start)
    left = entry.packed
    while left:
        chunk = _exactly(file, min(left, _CHUNK))
        left -= len(chunk)
        yield chunk


def _inflated(file: BinaryIO, entry: _Entry, start: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(-15)
    try:
        for packed in _stored(file, entry, start):
            data = packed
            while data and not decoder.eof:
                yield decoder.decompress(data, _CHUNK)
                data = decoder.unconsumed_tail
            if data or decoder.unused_data:
                raise ArchiveRefused("it is broken: something follows its end", entry.name)
        yield decoder.flush()
    except zlib.error as error:
        raise ArchiveRefused(f"it is broken: {error}", entry.name) from None
    if not decoder.eof:
        raise ArchiveRefused("it is cut short", entry.name)


def _fields(file: BinaryIO, mark: bytes, shape: struct.Struct, at: int | None = None) -> tuple[int, ...]:
    """The numbers of a header that begins with ``mark``, here or at a place."""
    if at is not None:
        if not 0 <= at < _FARTHEST:
            raise ArchiveRefused("it is broken: a header of the zip lies outside it")
        file.seek(at)
    found, *numbers = shape.unpack(_exactly(file, shape.size))
    if found != mark:
        raise ArchiveRefused("it is broken: a header of the zip is not where it should be")
    return tuple(numbers)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ArchiveRefused("it is cut short")
    return data
