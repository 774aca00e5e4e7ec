"""The folder that an archive is unpacked into: its limits, and the rules for names. Writes below one root only.

It makes only directories and regular files. It makes no links, so no path leads through one. Each file is on disk when
``write`` returns, the folders when ``finish`` returns.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edt_api.errors import ArchiveRefused, TooLarge
from edt_contract.durable import sync, write_all
from edt_scheduler.home import code_copies

_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = frozenset({"Cc", "Cs"})
"""Unicode categories of control characters and of halves of surrogate pairs."""

Parts = tuple[str, ...]
KIB, MIB = 1024, 1024**2


@dataclass(frozen=True)
class Limits:
    """All limits of an upload. They apply to bytes really read or written, never to sizes that a header declares."""

    upload_bytes: int = 512 * MIB
    """The most bytes of a request."""
    total_bytes: int = code_copies.LIMITS.total_bytes
    """The most bytes of all files together."""
    file_bytes: int = code_copies.LIMITS.file_bytes
    members: int = code_copies.LIMITS.members
    """The most files and folders."""
    directory_bytes: int = 32 * MIB
    """The largest directory of a zip, in bytes. The directory is held in memory: the names, and at least 46 bytes for
    each.
    """
    depth: int = code_copies.LIMITS.depth
    """The most folders inside each other."""
    name_bytes: int = 255
    """The longest component of a path, in bytes."""
    path_bytes: int = 1024
    ratio: int = 200
    """The most bytes written for each byte sent. Source code packs about 5 to 1, zeros 1000 to 1."""
    ratio_from_bytes: int = 32 * MIB
    """The ratio does not apply below this number of written bytes."""

    @property
    def headers(self) -> int:
        """The most headers of a tar: one for each member, and on average two extension headers for each."""
        return 3 * self.members

    def written_bytes(self, sent: int) -> int:
        """Return the most bytes of files that an upload of ``sent`` bytes may unpack to."""
        return min(self.total_bytes, max(self.ratio_from_bytes, self.ratio * sent))

    def stream_bytes(self, sent: int) -> int:
        """Return the most bytes that a packed tar of ``sent`` bytes may unpack to, with headers and padding."""
        return self.written_bytes(sent) + 4 * KIB * min(self.members, 64 + sent)


LIMITS = Limits()
"""The platform's limits. Tests may use others."""


class Tree:
    """Makes the folder ``root``, writes members below it, and counts them. ``sent`` is the upload's size in bytes."""

    def __init__(self, root: Path, limits: Limits, sent: int) -> None:
        root.mkdir(mode=0o755)
        self._root = root
        self._limits = limits
        self._left_bytes = limits.written_bytes(sent)
        self._folders: set[Parts] = {()}
        self._files: set[Parts] = set()

    def folder(self, name: str) -> None:
        """Make a folder and its parents. An existing folder is left as it is.

        Raises:
            ArchiveRefused: the name is not allowed, or names a file.
            TooLarge: there are too many members.
        """
        self._make_folders(self._parts(name), name)

    def write(self, name: str, chunks: Iterable[bytes], *, executable: bool) -> None:
        """Write a file and sync it to disk.

        Raises:
            ArchiveRefused: the name is not allowed, or was written before.
            TooLarge: the file or the whole upload exceeds a limit.
        """
        parts = self._parts(name)
        if not parts or name.endswith("/"):
            raise ArchiveRefused("a file needs a name", name)
        if parts in self._files or parts in self._folders:
            raise ArchiveRefused("it is in there twice", name)
        self._make_folders(parts[:-1], name)
        self._count(name)
        self._files.add(parts)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._root.joinpath(*parts), flags, 0o755 if executable else 0o644)
        written = 0
        try:
            for chunk in chunks:
                written += len(chunk)
                self._spend(len(chunk), written, name)
                write_all(descriptor, chunk)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Sync the folders to disk.

        Raises:
            ArchiveRefused: the archive held no file.
        """
        if not self._files:
            raise ArchiveRefused("it holds no file")
        for parts in sorted(self._folders, key=len, reverse=True):
            sync(self._root.joinpath(*parts))
        sync(self._root.parent)

    def _parts(self, name: str) -> Parts:
        """Return the components of a member's name; () is the root itself.

        Raises:
            ArchiveRefused: the name could lead out of the root, or is too long or too deep.
        """
        limits = self._limits
        if name.startswith("/") or _DRIVE.match(name):
            raise ArchiveRefused("its name is absolute", name)
        if "\\" in name or any(unicodedata.category(character) in _CONTROL for character in name):
            raise ArchiveRefused("its name has a backslash or a control character", name)
        parts = tuple(part for part in unicodedata.normalize("NFC", name).split("/") if part not in {"", "."})
        if ".." in parts:
            raise ArchiveRefused("its name leads out of its folder", name)
        if len(parts) > limits.depth:
            raise ArchiveRefused(f"it lies more than {limits.depth} folders deep", name)
        longest = max((len(part.encode()) for part in parts), default=0)
        if longest > limits.name_bytes or len(name.encode()) > limits.path_bytes:
            raise ArchiveRefused("its name is too long", name[:100])
        return parts

    def _make_folders(self, parts: Parts, name: str) -> None:
        for length in range(1, len(parts) + 1):
            folder = parts[:length]
            if folder in self._folders:
                continue
            if folder in self._files:
                raise ArchiveRefused("it is a file and a folder at once", "/".join(folder))
            self._count(name)
            self._root.joinpath(*folder).mkdir(mode=0o755)
            self._folders.add(folder)

    def _count(self, name: str) -> None:
        if len(self._files) + len(self._folders) > self._limits.members:
            raise TooLarge(f"{name!r} is one file too many: at most {self._limits.members} are taken")

    def _spend(self, chunk: int, written: int, name: str) -> None:
        self._left_bytes -= chunk
        if written > self._limits.file_bytes:
            raise TooLarge(f"{name!r} is larger than {self._limits.file_bytes} bytes")
        if self._left_bytes < 0:
            raise TooLarge(
                f"{name!r} is where the upload becomes too large: at most {self._limits.total_bytes} bytes are taken, "
                f"and {self._limits.ratio} for each byte sent"
            )
