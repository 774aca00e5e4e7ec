"""Unpacking what a stranger sent: tar, gzipped tar, zip or a bare script. Touches one folder.

The standard library's extractors are no boundary: what is written, ``tree`` writes, regular files and directories
only, never outside the folder, under limits on bytes that were really written. The library's tar reader takes a broken
header in the middle for the end, so headers of a tar are read here. Whatever is cut or broken is refused whole. When
``unpack`` returns, all of it is on disk; when it raises, nothing is left.

``tree`` says how much is taken and writes, ``tars`` and ``zips`` read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from edt_api.errors import ArchiveRefused
from edt_api.submissions.archives import tars, zips
from edt_api.submissions.archives.tree import LIMITS, Limits, Tree

_CHUNK = 256 * 1024
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "RAR",
}
_TAKEN = "take tar, plain or with gzip, zip, or the script alone"


def unpack(upload: BinaryIO, into: Path, *, script: str, limits: Limits = LIMITS) -> None:
    """Unpack ``upload`` into ``into``, a folder that does not exist yet. Its first bytes say what it is.

    ``script`` names the file if the upload is a bare script. Raises ArchiveRefused and TooLarge.
    """
    upload.seek(0, 2)
    size = upload.tell()
    upload.seek(0)
    head = upload.read(tars.BLOCK)
    upload.seek(0)
    try:
        tree = Tree(into, limits, size)
        if head.startswith(b"\x1f\x8b"):
            tars.extract(tars.Gunzip(upload, limits.stream_bytes(size)), tree, limits)
        elif head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            zips.extract(upload, size, tree, limits)
        elif tars.begins_like_one(head):
            tars.extract(upload, tree, limits)
        else:
            _script(upload, head, size, tree, script)
        tree.finish()
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def unpack_file(upload: Path, into: Path, script: str) -> None:
    """``unpack`` the file of this path: what a process can be asked for that did not open it."""
    with upload.open("rb") as file:
        unpack(file, into, script=script)


def _script(upload: BinaryIO, head: bytes, size: int, tree: Tree, name: str) -> None:
    """A single file, if it is text."""
    if size == 0:
        raise ArchiveRefused("it is empty")
    for magic, packer in _FOREIGN.items():
        if head.startswith(magic):
            raise ArchiveRefused(f"it is packed by {packer}; we {_TAKEN}")

    def text() -> Iterator[bytes]:
        while chunk := upload.read(_CHUNK):
            if b"\0" in chunk:
                raise ArchiveRefused(f"it is neither an archive nor text; we {_TAKEN}")
            yield chunk

    tree.write(name, text(), executable=False)
