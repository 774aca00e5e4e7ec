"""Unpacks an upload of an untrusted client: tar, gzipped tar, zip or a bare script. Touches one folder.

The standard library's extractors are not a security boundary. So only ``tree`` writes: regular files and directories,
never outside the folder, under limits on the bytes really written. The library's tar reader takes a broken header in
the middle for the end, so ``tars`` reads the headers itself. An archive that is cut or broken is refused whole. When
``unpack`` returns, all files are on disk. When it raises, nothing is left.

``tree`` holds the limits and writes; ``tars`` and ``zips`` read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO
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
    """Unpack ``upload`` into the folder ``into``, which must not exist yet. The first bytes of the upload tell its
    format.

    Args:
        upload: the uploaded file.
        into: folder to be made.
        script: name of the file if the upload is a bare script.
        limits: limits on sizes and counts.

    Raises:
        ArchiveRefused: the upload is cut, broken, in another format, or holds what is not taken.
        TooLarge: the upload exceeds a limit.
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


def unpack_file(upload: Path | bytes, into: Path, script: str) -> None:
    """Unpack the file at this path, or these bytes, with ``unpack``. A child process can be asked to do so, since both
    can be pickled.
    """
    with BytesIO(upload) if isinstance(upload, bytes) else upload.open("rb") as file:
        unpack(file, into, script=script)


def _script(upload: BinaryIO, head: bytes, size: int, tree: Tree, name: str) -> None:
    """Write the upload as a single file. Refuse it if it is not text."""
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
