"""Recovery checkpoints as files: how they are named, found and checked. Nothing is ever unpickled.

A checkpoint is a folder ``at-<offset>`` with ``state.safetensors`` and ``manifest.json``. The manifest is written last
and holds the digests of the state file and of itself. Engines write checkpoints
(``edt_runner.checkpoints.checkpoint``); the platform copies one into the folder of a job that begins from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

FORMAT = 3
"""Format of the manifests that are written. Manifests of format 2 can be read, too."""
_NAMES_OF_FORMAT_2 = {"tick": "offset", "logical_workers": "micro_batches", "tally": "metric_sums"}
"""Keys of a manifest of format 2, and what they are called now."""
STATE, MANIFEST, OWN_DIGEST = "state.safetensors", "manifest.json", "sha256"
"""The two files of a checkpoint, and the manifest's key for its own digest."""
MANIFEST_BYTES = 32 << 20
"""A longer manifest is not read. Those of the largest models have a tenth of that."""
_MOST = 2**63 - 1
"""The highest offset or step: what a column of the database holds."""
_NAME = re.compile(r"at-(\d{10})")


class CheckpointDamaged(ValueError):
    """A checkpoint is not what was written. The message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose digests match."""

    path: Path
    offset: int
    """How far the training is in its schedule."""
    manifest: Mapping[str, Any]
    """What was written with the state: fence, identity of the training, metadata of the tensors, sums of the epoch."""

    @property
    def state_file(self) -> Path:
        """The tensors, in safetensors format."""
        return self.path / STATE

    @property
    def step(self) -> int | None:
        """The step of the training; None: the manifest has none, as those of format 2, or what it has is no step."""
        step = self.manifest.get("step")
        return step if _is_position(step) else None


def newest(
    folder: Path, *, most: int | None = None, note: Callable[[str], None] = lambda text: None
) -> Checkpoint | None:
    """Find the whole checkpoint of the highest offset.

    Args:
        folder: the folder of the job's checkpoints.
        most: the highest offset that is wanted; None: any.
        note: called with a sentence about each checkpoint that is not whole.

    Returns:
        The checkpoint, or None if there is none.
    """
    if not folder.is_dir():
        return None
    for path in reversed(every(folder)):
        if most is not None and path.name > name_of(most):
            continue
        try:
            return verify(path)
        except CheckpointDamaged as error:
            note(f"checkpoint {path.name} is passed over: {error}")
    return None


def verify(path: Path) -> Checkpoint:
    """Return the checkpoint in the folder ``path``.

    A job may have written anything there. So only the two files of a checkpoint are opened, whatever the manifest
    names, and only as regular files.

    Raises:
        CheckpointDamaged: it is not whole.
    """
    try:
        with _open(path / MANIFEST) as file:
            text = file.read(MANIFEST_BYTES + 1)
        if len(text) > MANIFEST_BYTES:
            raise CheckpointDamaged(f"{MANIFEST} has more than {MANIFEST_BYTES} bytes")
        manifest = json.loads(text)
        if manifest["format"] not in (FORMAT, 2):
            raise CheckpointDamaged(f"format {manifest['format']}, this release reads 2 and {FORMAT}")
        if manifest.pop(OWN_DIGEST) != digest_of(manifest):
            raise CheckpointDamaged(f"{MANIFEST} is not what was written")
        if manifest["format"] == 2:
            manifest = _of_format_2(manifest)
        if set(manifest["files"]) != {STATE}:
            raise CheckpointDamaged(f"{MANIFEST} names other files than {STATE}")
        if not _is_position(manifest["offset"]):
            raise CheckpointDamaged(f"{MANIFEST} has an offset that is none")
        facts = manifest["files"][STATE]
        with _open(path / STATE) as file:
            size = os.fstat(file.fileno()).st_size
            if size != facts["bytes"] or hashlib.file_digest(file, "sha256").hexdigest() != facts["sha256"]:  # type: ignore[arg-type]  # it has readinto
                raise CheckpointDamaged(f"{STATE} is not what was written")
        return Checkpoint(path, manifest["offset"], manifest)
    except CheckpointDamaged:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointDamaged(f"unreadable ({error})") from None


def is_whole(path: Path) -> bool:
    """Whether the folder ``path`` holds a whole checkpoint."""
    try:
        verify(path)
    except CheckpointDamaged:
        return False
    return True


def is_name(name: str) -> bool:
    """Whether a folder of this name is a checkpoint."""
    return _NAME.fullmatch(name) is not None


def name_of(offset: int) -> str:
    """The name of the checkpoint of ``offset``. Names are sorted as offsets are."""
    return f"at-{offset:010d}"


def every(folder: Path) -> list[Path]:
    """All checkpoints in ascending order of offset, whole or not."""
    return sorted(path for path in folder.iterdir() if is_name(path.name))


def digest_of(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without its own digest, hexadecimal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> BinaryIO:
    """Open a regular file. A link is not followed, and a pipe not waited for.

    Raises:
        OSError: it cannot be opened.
        CheckpointDamaged: it is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointDamaged(f"{path.name} is no file")
    return os.fdopen(handle, "rb")


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _of_format_2(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an earlier release, with the present names of its keys."""
    identity = {_NAMES_OF_FORMAT_2.get(name, name): value for name, value in manifest["identity"].items()}
    return {_NAMES_OF_FORMAT_2.get(name, name): value for name, value in manifest.items()} | {"identity": identity}
