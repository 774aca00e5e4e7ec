"""Small file systems of a test's own, which can be filled to the last byte, where root may mount them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tmpfs_mount(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of this size on an existing folder. Raises OSError where it may not be mounted."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "edt-test", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PermissionError(f"no tmpfs can be mounted on {folder}: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)


def has_tmpfs_mount() -> bool:
    with tempfile.TemporaryDirectory(prefix="edt-tmpfs-") as folder:
        try:
            with tmpfs_mount(Path(folder), 1 << 16):
                return True
        except OSError:
            return False
