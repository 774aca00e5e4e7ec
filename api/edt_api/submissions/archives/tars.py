"""Reads tar files strictly: ustar, GNU and pax, with or without gzip. Pure apart from reading the stream.

A tar is a sequence of 512-byte blocks. A header with a checksum comes first, then the data, padded to whole blocks,
then the next header. Two blocks of zeros end the tar, and only zeros may follow. An archive with anything else is cut
or broken.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from edt_api.errors import ArchiveRefused, TooLarge
from edt_api.submissions.archives.tree import Limits, Tree

BLOCK = 512
_CHUNK = 256 * 1024
_GZIP_CHUNK = 64 * 1024
_GZIP = 31
"""The ``wbits`` of zlib that mean a gzip header and trailer and the largest window."""
_ZEROS = bytes(BLOCK)
_EXTENSION_BYTES = 64 * 1024
"""The longest extension header. It holds a name, or pax records of times and owners."""

_REFUSED = {
    b"1": "it is a hard link; only files and folders are taken",
    b"2": "it is a symbolic link; only files and folders are taken",
    b"3": "it is a character device; only files and folders are taken",
    b"4": "it is a block device; only files and folders are taken",
    b"6": "it is a named pipe; only files and folders are taken",
    b"S": "it is a sparse file; pack it without --sparse",
}
_OCTAL = re.compile(rb"[0-7]*")
_PAX_LENGTH = re.compile(rb"([1-9][0-9]{0,9}) ")
_DECIMAL = re.compile(r"[0-9]{1,18}")


class Gunzip:
    """A gzip file as a stream of its content, limited to ``most`` bytes. The stream reports its end only after it has
    verified the length and the CRC-32 of every gzip member.

    This class replaces ``gzip.GzipFile``, which reads names in headers and zeros at the end byte by byte. An upload
    full of those would keep a process busy for a minute.
    """

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = self._left = most
        self._input = b""
        self._member = zlib.decompressobj(_GZIP)
        self._inside = True
        """Whether the position is inside a gzip member, whose trailer has not come yet."""

    def read(self, most: int) -> bytes:
        """Return some bytes, at most ``most``; no bytes at the end.

        Raises:
            ArchiveRefused: the file is cut or broken.
            TooLarge: the content has more bytes than the limit.
        """
        while True:
            self._input = self._input or self._file.read(_GZIP_CHUNK)
            if not self._input:
                if self._inside:
                    raise ArchiveRefused("it is cut short: the gzip trailer is missing")
                return b""
            if not self._inside and not self._begin_another():
                continue
            data = self._inflate(min(most, _GZIP_CHUNK))
            if data:
                self._left -= len(data)
                if self._left < 0:
                    raise TooLarge(f"the upload unpacks to more than {self._most} bytes")
                return data

    def _begin_another(self) -> bool:
        """Begin the next gzip member if there is one. Members may follow each other, and zeros may follow the last
        member.
        """
        self._input = self._input.lstrip(b"\0")
        if self._input:
            self._member = zlib.decompressobj(_GZIP)
            self._inside = True
        return self._inside

    def _inflate(self, most: int) -> bytes:
        try:
            data = self._member.decompress(self._input, most)
        except zlib.error as error:
            raise ArchiveRefused(f"it is broken: {error}") from None
        if self._member.eof:
            self._inside = False
            self._input = self._member.unused_data
        else:
            self._input = self._member.unconsumed_tail
        return data


Readable: TypeAlias = BinaryIO | Gunzip
"""What a tar is read from."""


@dataclass(frozen=True)
class _Header:
    name: bytes
    size: int
    mode: int
    kind: bytes


def begins_like_one(head: bytes) -> bool:
    """Whether these first bytes are a tar's: the mark of ustar, a block of zeros, or a header with the right
    checksum.
    """
    if len(head) < BLOCK:
        return False
    return head[257:262] == b"ustar" or head == _ZEROS or _checksum_is_right(head)


def extract(source: Readable, tree: Tree, limits: Limits) -> None:
    """Write all members into ``tree``.

    Headers have a limit of their own, because extension headers and repeated folders add no member to the tree.

    Raises:
        ArchiveRefused: the tar is cut or broken, or a member is not allowed; the error names that member.
        TooLarge: the tar exceeds a limit.
    """
    headers = 0
    extension: dict[str, str] = {}  # extension headers of the next member
    while True:
        block = _exactly(source, BLOCK)
        if block == _ZEROS:
            if extension:
                raise ArchiveRefused("it is broken: an extension header without its file")
            return _end(source)
        headers += 1
        if headers > limits.headers:
            raise TooLarge(f"the upload holds too many headers: at most {limits.headers} are taken")
        header = _header(block)
        if header.kind in {b"L", b"K", b"x", b"g"}:
            data = _extension(source, header)
            if header.kind == b"L":
                extension["path"] = _text(data.partition(b"\0")[0])
            elif header.kind == b"x":
                extension |= _pax(data)
        else:
            _member(source, header, extension, tree)
            extension = {}


def _member(source: Readable, header: _Header, extension: dict[str, str], tree: Tree) -> None:
    name = extension["path"] if "path" in extension else _text(header.name)
    size = header.size
    if "size" in extension:
        if not _DECIMAL.fullmatch(extension["size"]):
            raise ArchiveRefused("it is broken: a size that is no number", name)
        size = int(extension["size"])
    if header.kind in _REFUSED or any(key.startswith("GNU.sparse.") for key in extension):
        raise ArchiveRefused(_REFUSED.get(header.kind, _REFUSED[b"S"]), name)
    is_folder = header.kind == b"5" or (header.kind in {b"0", b"\0"} and name.endswith("/"))
    if is_folder and size == 0:
        tree.folder(name)
    elif header.kind in {b"0", b"\0", b"7"} and not is_folder:
        tree.write(name, _data(source, size), executable=bool(header.mode & 0o111))
        _exactly(source, -size % BLOCK)
    else:
        raise ArchiveRefused(f"it is of a kind we do not know ({header.kind!r})", name)


def _header(block: bytes) -> _Header:
    if not _checksum_is_right(block):
        raise ArchiveRefused("it is broken: a header's checksum is wrong")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and prefix:  # GNU tars keep other data in the prefix field
        name = prefix + b"/" + name
    return _Header(name, _number(block[124:136]), _number(block[100:108]), block[156:157])


def _checksum_is_right(block: bytes) -> bool:
    """Whether the checksum is the sum of all bytes of the header. The checksum's own field counts as blanks.

    Old writers added signed bytes; this sum is right, too.
    """
    digits = block[148:156].strip(b" \0")
    if not digits or not _OCTAL.fullmatch(digits):
        return False
    blanked = block[:148] + b" " * 8 + block[156:]
    unsigned, written = sum(blanked), int(digits, 8)
    return written == unsigned or written == unsigned - 256 * sum(byte > 127 for byte in blanked)


def _number(field: bytes) -> int:
    """Return the number of a field: octal digits, or, if the highest bit is set, the bytes of the number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not _OCTAL.fullmatch(digits):
        raise ArchiveRefused("it is broken: a header's number is none")
    return int(digits or b"0", 8)


def _extension(source: Readable, header: _Header) -> bytes:
    if header.size > _EXTENSION_BYTES:
        raise ArchiveRefused(f"an extension header of {header.size} bytes; at most {_EXTENSION_BYTES} are taken")
    return _exactly(source, header.size + -header.size % BLOCK)[: header.size]


def _pax(data: bytes) -> dict[str, str]:
    """Return the records ``<length> <key>=<value>\\n`` that matter here. The length includes its own digits."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        length = _PAX_LENGTH.match(data, at)
        end = at + int(length.group(1)) if length else 0
        if length is None or not length.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise ArchiveRefused("it is broken: an extension header that cannot be read")
        key, equals, value = data[length.end() : end - 1].partition(b"=")
        if not equals:
            raise ArchiveRefused("it is broken: an extension header that cannot be read")
        if key in {b"path", b"size"} or key.startswith(b"GNU.sparse."):
            records[_text(key)] = _text(value)
        at = end
    return records


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ArchiveRefused("its name is not UTF-8", name.decode(errors="replace")) from None


def _data(source: Readable, size: int) -> Iterator[bytes]:
    while size:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            raise ArchiveRefused("it is cut short")
        size -= len(chunk)
        yield chunk


def _exactly(source: Readable, size: int) -> bytes:
    return b"".join(_data(source, size))


def _end(source: Readable) -> None:
    """Check the end, after the first block of zeros: a second block of zeros must follow, and then only zeros."""
    if _exactly(source, BLOCK) != _ZEROS:
        raise ArchiveRefused("it is broken: a header in its middle is empty")
    while chunk := source.read(_CHUNK):
        if chunk.strip(b"\0"):
            raise ArchiveRefused("it is broken: something follows its end")
