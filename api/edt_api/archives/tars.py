"""Reading tar: ustar, GNU and pax, strictly. Room: api. Pure but for reading the stream.

A tar is a row of 512-byte blocks: a header with a checksum, the data rounded up, the next header; two blocks of
zeros end it, and nothing but zeros may follow. Whatever else is met is a cut or broken archive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from edt_api.archives.limits import Limits
from edt_api.archives.tree import Tree
from edt_api.errors import ArchiveRefused, TooLarge

BLOCK = 512
_CHUNK = 256 * 1024
_ZEROS = bytes(BLOCK)
_EXTENSION_BYTES = 64 * 1024
"""The longest extension header: a name, and what pax says of times and owners."""

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


class Readable(Protocol):
    """What a tar is read from."""

    def read(self, most: int, /) -> bytes: ...


@dataclass(frozen=True)
class _Header:
    name: bytes
    size: int
    mode: int
    kind: bytes


def begins_like_one(head: bytes) -> bool:
    """Whether these first bytes are a tar's: the mark of ustar, or a header whose checksum is right."""
    if len(head) < BLOCK:
        return False
    return head[257:262] == b"ustar" or head == _ZEROS or _checksum_is_right(head)


def extract(source: Readable, tree: Tree, limits: Limits) -> None:
    """Write all members into ``tree``. Raises ArchiveRefused, which names the member where there is one, and TooLarge.

    Headers are counted besides members: those that tell nothing, and folders told of again, add none to the tree.
    """
    headers = 0
    told: dict[str, str] = {}  # by extension headers, about the next member
    while True:
        block = _exactly(source, BLOCK)
        if block == _ZEROS:
            if told:
                raise ArchiveRefused("it is broken: an extension header without its file")
            return _end(source)
        headers += 1
        if headers > limits.headers:
            raise TooLarge(f"the upload holds too many headers: at most {limits.headers} are taken")
        header = _header(block)
        if header.kind in {b"L", b"K", b"x", b"g"}:
            data = _extension(source, header)
            if header.kind == b"L":
                told["path"] = _text(data.partition(b"\0")[0])
            elif header.kind == b"x":
                told |= _pax(data)
        else:
            _member(source, header, told, tree)
            told = {}


def _member(source: Readable, header: _Header, told: dict[str, str], tree: Tree) -> None:
    name = told["path"] if "path" in told else _text(header.name)
    size = header.size
    if "size" in told:
        if not _DECIMAL.fullmatch(told["size"]):
            raise ArchiveRefused("it is broken: a size that is no number", name)
        size = int(told["size"])
    if header.kind in _REFUSED or any(key.startswith("GNU.sparse.") for key in told):
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
    if block[257:263] == b"ustar\0" and prefix:  # GNU keeps other things there
        name = prefix + b"/" + name
    return _Header(name, _number(block[124:136]), _number(block[100:108]), block[156:157])


def _checksum_is_right(block: bytes) -> bool:
    """The sum of all bytes, the sum's own field counted as blanks. Old writers added signed bytes."""
    told = block[148:156].strip(b" \0")
    if not told or not _OCTAL.fullmatch(told):
        return False
    blanked = block[:148] + b" " * 8 + block[156:]
    unsigned, said = sum(blanked), int(told, 8)
    return said == unsigned or said == unsigned - 256 * sum(byte > 127 for byte in blanked)


def _number(field: bytes) -> int:
    """Octal digits, or, marked by the highest bit, the bytes of the number."""
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
    """Records ``<length> <key>=<value>\\n``; the length counts itself."""
    told: dict[str, str] = {}
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
            told[_text(key)] = _text(value)
        at = end
    return told


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
    """The first block of zeros was read; a second must follow, and then nothing else."""
    if _exactly(source, BLOCK) != _ZEROS:
        raise ArchiveRefused("it is broken: a header in its middle is empty")
    while chunk := source.read(_CHUNK):
        if chunk.strip(b"\0"):
            raise ArchiveRefused("it is broken: something follows its end")
