"""Recovery checkpoints: all that a training is, on disk, free of the number of engines. Room: runners; files only.

A checkpoint is a folder ``at-<tick>``: ``state.safetensors`` and ``manifest.json``, which is written last and
holds the digest of the other. It is written beside its place and renamed into it, so a folder with the right
name is whole; what is torn all the same (a full disk, a flipped bit) is told by its digest and passed over.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edt_runner.errors import CheckpointError

FORMAT = 1
KEEP = 3
"""Newest checkpoints that are kept."""
_STATE, _MANIFEST, _LATEST = "state.safetensors", "manifest.json", "latest"
_NAME = re.compile(r"at-(\d{10})")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    tick: int
    manifest: Mapping[str, Any]

    @property
    def state_file(self) -> Path:
        return self.path / _STATE


def write(folder: Path, tick: int, manifest: Mapping[str, Any], write_state: Callable[[Path], None]) -> Path:
    """Write the checkpoint of position ``tick`` durably; ``write_state(path)`` writes the tensors.

    Writing a position that is there already does nothing: equal positions hold equal states.
    """
    place = folder / f"at-{tick:010d}"
    if place.exists():
        try:
            _verify(place)
        except CheckpointError:
            shutil.rmtree(place)
        else:
            return place
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(".at-*.tmp"):  # of writers that were killed; there is one writer at a time
        shutil.rmtree(old, ignore_errors=True)
    draft = folder / f".at-{tick:010d}.{os.getpid()}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    write_state(draft / _STATE)
    _sync(draft / _STATE)
    files = {_STATE: {"sha256": _digest(draft / _STATE), "bytes": (draft / _STATE).stat().st_size}}
    whole = {**manifest, "format": FORMAT, "tick": tick, "files": files}
    (draft / _MANIFEST).write_text(json.dumps(whole, indent=1))
    _sync(draft / _MANIFEST)
    _sync(draft)
    draft.rename(place)
    _point_to(folder, place.name)
    _prune(folder)
    return place


def newest(folder: Path, *, note: Callable[[str], None] = lambda text: None) -> Checkpoint | None:
    """The checkpoint of the highest position that is whole; ``note`` hears of each that is not."""
    if not folder.is_dir():
        return None
    found = sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
    for path in found:
        try:
            return _verify(path)
        except CheckpointError as error:
            note(f"checkpoint {path.name} is passed over: {error}")
    return None


def set_aside(folder: Path) -> Path:
    """Move all checkpoints of a training that is not this one out of the way; returns where they went."""
    number = 1
    while (place := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(place)
    return place


def _verify(path: Path) -> Checkpoint:
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"format {manifest['format']}, this release reads {FORMAT}")
        for name, facts in manifest["files"].items():
            if (path / name).stat().st_size != facts["bytes"] or _digest(path / name) != facts["sha256"]:
                raise CheckpointError(f"{name} is not what was written")
        return Checkpoint(path, int(manifest["tick"]), manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"unreadable ({error})") from None


def _point_to(folder: Path, name: str) -> None:
    """``latest`` names the newest checkpoint; for people and scripts, we look at the folders."""
    draft = folder / f".latest.{os.getpid()}"
    draft.write_text(name + "\n")
    draft.replace(folder / _LATEST)
    _sync(folder)


def _prune(folder: Path) -> None:
    found = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    for path in found[:-KEEP]:
        shutil.rmtree(path, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
