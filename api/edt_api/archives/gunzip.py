"""A gzip file as a stream of what it holds, its checks insisted on. Room: api. Pure but for reading the file."""

from __future__ import annotations

import zlib
from typing import BinaryIO

from edt_api.errors import ArchiveRefused, TooLarge

_CHUNK = 64 * 1024
_GZIP = 31
"""zlib's word for: a gzip header and trailer, the largest window."""


class Gunzip:
    """Reads like a file. The end is told only once every member's length and CRC-32 were found right."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = self._left = most
        self._input = b""
        self._member = zlib.decompressobj(_GZIP)
        self._inside = True
        """Of a member: its trailer is still to come."""

    def read(self, most: int) -> bytes:
        """Some bytes, at most so many; none at the end. Raises ArchiveRefused where the file is cut or broken."""
        while True:
            self._input = self._input or self._file.read(_CHUNK)
            if not self._input:
                if self._inside:
                    raise ArchiveRefused("it is cut short: the gzip trailer is missing")
                return b""
            if not self._inside and not self._begin_another():
                continue
            data = self._inflate(min(most, _CHUNK))
            if data:
                self._left -= len(data)
                if self._left < 0:
                    raise TooLarge(f"the upload unpacks to more than {self._most} bytes")
                return data

    def _begin_another(self) -> bool:
        """Members may follow each other, and zeros the last one."""
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
