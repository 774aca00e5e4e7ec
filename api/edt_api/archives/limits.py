"""How much one upload may be, and may become. Room: api. Pure."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@dataclass(frozen=True)
class Limits:
    """All that is capped. Sizes are of what was really read or written, never of what a header claims."""

    upload_bytes: int = 512 * MIB
    """What a request may send."""
    total_bytes: int = 2 * GIB
    """What all files together may become."""
    file_bytes: int = 1 * GIB
    members: int = 50_000
    """Files and folders."""
    directory_bytes: int = 32 * MIB
    """The directory of a zip, which is in memory whole: names, and 46 bytes or more for each."""
    depth: int = 32
    """Folders in each other."""
    name_bytes: int = 255
    """One component of a path."""
    path_bytes: int = 1024
    ratio: int = 200
    """Bytes written for each byte sent; source code packs about 5 to 1, zeros 1000 to 1."""
    ratio_from_bytes: int = 32 * MIB
    """Below this the ratio does not matter."""

    @property
    def headers(self) -> int:
        """Of a tar: one of each member, and on average two that tell more about it."""
        return 3 * self.members

    def written_bytes(self, sent: int) -> int:
        """What an upload of ``sent`` bytes may become."""
        return min(self.total_bytes, max(self.ratio_from_bytes, self.ratio * sent))

    def stream_bytes(self, sent: int) -> int:
        """What a packed tar of ``sent`` bytes may unpack to, headers and padding included."""
        return self.written_bytes(sent) + 4 * KIB * min(self.members, 64 + sent)


LIMITS = Limits()
"""What the platform takes unless a test says otherwise."""
