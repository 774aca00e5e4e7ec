"""Copies a job's newest checkpoint out of its folder, for another job to begin from. This module reads the job's folder
and writes the copy.

The job may have written anything there, and more than a checkpoint. ``copying`` says how that is met.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edt_contract import durable
from edt_contract.checkpoints import MANIFEST, MANIFEST_BYTES, STATE, Checkpoint, CheckpointDamaged, is_name, verify
from edt_scheduler.home.copying import TooLarge, copy_file, folder

_MOST = {MANIFEST: MANIFEST_BYTES, STATE: None}
"""The files of a checkpoint, and the most bytes of each; None: as many as the disk takes."""
_TRIES = 3
"""A job that trains removes its older checkpoints. So what was listed may be gone when it is copied."""


def copy_newest(checkpoints: Path, to: Path) -> Checkpoint | None:
    """Copy the newest whole checkpoint.

    Args:
        checkpoints: the folder of a job's checkpoints.
        to: the folder to make; its parent is there. The copy is durable in it, and has its checkpoint's name.

    Returns:
        The copy, whose digests match; None: there is no whole checkpoint, and ``to`` was not made.

    Raises:
        OSError: the copy cannot be written, or the folder cannot be read; ENOSPC: the disk has not enough room.
    """
    to.mkdir()
    try:
        for _ in range(_TRIES):
            found = _copy_one(checkpoints, to)
            if found is not None:
                durable.sync(found.path)
                durable.sync(to)
                return found
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise
    to.rmdir()
    return None


def _copy_one(checkpoints: Path, to: Path) -> Checkpoint | None:
    with folder(checkpoints) as parent:
        if parent is None:
            return None
        with os.scandir(parent) as entries:
            names = sorted((entry.name for entry in entries if is_name(entry.name)), reverse=True)
        for name in names:
            copy = to / name
            try:
                if _copied(parent, name, copy):
                    return verify(copy)
            except (CheckpointDamaged, TooLarge):
                pass
            shutil.rmtree(copy, ignore_errors=True)
    return None


def _copied(parent: int, name: str, copy: Path) -> bool:
    """Copy one checkpoint. False: a part of it is not there, or is no file. Raises TooLarge: its manifest is none."""
    with folder(name, parent) as source:
        if source is None:
            return False
        copy.mkdir()
        sizes = (copy_file(source, file, copy / file, most=most) for file, most in _MOST.items())
        return all(size is not None for size in sizes)
