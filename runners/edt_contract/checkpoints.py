"""Recovery checkpoints as files: how they are named, found and checked. Nothing is ever unpickled.

A checkpoint is a folder ``at-<offset>`` with ``state.safetensors`` and ``manifest.json``. The manifest is written last
and holds the digests of the state file and of itself. Engines write checkpoints
(``edt_runner.checkpoints.checkpoint``); the platform copies one into the folder of a job that begins from it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 3
"""Format of the manifests that are written. Manifests of format 2 can be read, too."""
_NAMES_OF_FORMAT_2 = {"tick": "offset", "logical_workers": "micro_batches", "tally": "metric_sums"}
"""Keys of a manifest of format 2, and what they are called now."""
STATE, MANIFEST, OWN_DIGEST = "state.safetensors", "manifest.json", "sha256"
"""The two files of a checkpoint, and the manifest's key for its own digest."""
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

    Raises:
        CheckpointDamaged: it is not whole.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        if manifest["format"] not in (FORMAT, 2):
            raise CheckpointDamaged(f"format {manifest['format']}, this release reads 2 and {FORMAT}")
        if manifest.pop(OWN_DIGEST) != digest_of(manifest):
            raise CheckpointDamaged(f"{MANIFEST} is not what was written")
        if manifest["format"] == 2:
            manifest = _of_format_2(manifest)
        for name, facts in manifest["files"].items():
            if (path / name).stat().st_size != facts["bytes"] or digest(path / name) != facts["sha256"]:
                raise CheckpointDamaged(f"{name} is not what was written")
        return Checkpoint(path, int(manifest["offset"]), manifest)
    except CheckpointDamaged:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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


def _of_format_2(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an earlier release, with the present names of its keys."""
    identity = {_NAMES_OF_FORMAT_2.get(name, name): value for name, value in manifest["identity"].items()}
    return {_NAMES_OF_FORMAT_2.get(name, name): value for name, value in manifest.items()} | {"identity": identity}
