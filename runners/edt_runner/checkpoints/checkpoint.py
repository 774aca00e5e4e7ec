"""Recovery checkpoints: files that hold the whole state of a training, for any number of engines.

A checkpoint is a folder ``at-<offset>`` with ``state.safetensors`` and ``manifest.json``. The manifest is written last
and holds the digests of the state file and of itself. The folder is written under a draft's name and then renamed, so
a folder with the right name is normally whole. A full disk or a flipped bit can still damage it; then the digests do
not match, and the checkpoint is skipped.

A job's next writer may begin before the disk has finished for the last one. Each writer therefore has its own drafts,
and an attempt with a fence that is no longer valid writes nothing. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edt_contract.attempt import FENCE_FILE
from edt_contract.checkpoints import (
    FORMAT,
    MANIFEST,
    OWN_DIGEST,
    STATE,
    digest,
    digest_of,
    every,
    is_whole,
    name_of,
    newest,
)
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import MAY_PASS, NO_ROOM, free_bytes, sync, write_whole
from edt_runner.errors import CheckpointError

__all__ = ["KEEP", "forget_after", "keep_newest", "newest", "set_aside", "write"]

KEEP = 3
"""How many of the newest checkpoints are kept."""
_LATEST = "latest"
_DRAFT = re.compile(r"\.at-(\d{10})\.(\d+)-.*\.tmp")


def write(
    folder: Path,
    offset: int,
    manifest: Mapping[str, Any],
    write_state: Callable[[Path], str | None],
    *,
    who: str = "",
    equal_at: int | None = None,
) -> Path:
    """Write the checkpoint of ``offset`` durably, under the fence that ``manifest`` names.

    A whole checkpoint of this offset is left as it is, because equal offsets hold equal states. If the disk is full,
    older checkpoints are removed. The newest whole one stays, and so does the newest whole one up to ``equal_at``.

    Args:
        folder: the folder of the job's checkpoints.
        offset: how far the training is in its schedule.
        manifest: plain JSON, with ``fence``.
        write_state: writes the tensors to a path; returns the file's SHA-256, or None if it does not know it.
        who: name of the engine that writes.
        equal_at: the newest offset at which all engines are known to have held equal states. The newest checkpoint up
            to this offset is kept, too.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: a newer attempt has shut out this one.
        OSError: the disk did not take the checkpoint; its draft is removed.
    """
    fence, place = int(manifest["fence"]), folder / name_of(offset)
    _refuse_if_shut_out(folder, fence)
    was_there = place.exists()
    if is_whole(place):
        sync(folder)  # an earlier sync of the checkpoint's name may have failed
    else:
        folder.mkdir(parents=True, exist_ok=True)
        if was_there:  # this one is torn; a folder that has appeared since is another engine's, and whole
            shutil.rmtree(place, ignore_errors=True)
        whole = {**manifest, "format": FORMAT, "offset": offset}
        try:
            _write(place, whole, write_state, who)
        except OSError as error:
            if error.errno not in NO_ROOM or not _leave_only_the_newest(folder, equal_at):
                raise
            _write(place, whole, write_state, who)
    _point_to(folder, place.name)
    _prune(folder, offset, equal_at)
    return place


def _leave_only_the_newest(folder: Path, equal_at: int | None) -> bool:
    """Remove all checkpoints but the newest whole one and the newest whole one up to ``equal_at``.

    Returns:
        False if that would not make room for another checkpoint; then nothing is removed.
    """
    kept = newest(folder)
    if kept is None:
        return False
    equal = newest(folder, most=equal_at) if equal_at is not None else None
    stay = {kept.path, equal.path if equal is not None else kept.path}
    others = [path for path in every(folder) if path not in stay]
    if not others or (free_bytes(folder) or 0) + sum(map(_size, others)) < _size(kept.path):
        return False
    for path in others:
        shutil.rmtree(path, ignore_errors=True)
    return True


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in path.iterdir())
    return 0


def _write(place: Path, manifest: Mapping[str, Any], write_state: Callable[[Path], str | None], who: str) -> None:
    folder, offset, fence = place.parent, manifest["offset"], manifest["fence"]
    _clear_drafts(folder, offset, fence)
    draft = folder / f".{place.name}.{fence}-{who or os.getpid()}.tmp"
    draft.mkdir()
    try:
        known = write_state(draft / STATE)
        sync(draft / STATE)
        size = (draft / STATE).stat().st_size
        whole = {**manifest, "files": {STATE: {"sha256": known or digest(draft / STATE), "bytes": size}}}
        (draft / MANIFEST).write_text(json.dumps({**whole, OWN_DIGEST: digest_of(whole)}, indent=1))
        sync(draft / MANIFEST)
        sync(draft)
        crash_point(CrashPoint.ENGINE_CHECKPOINT, at=offset, who=who)
        _refuse_if_shut_out(folder, fence)
        draft.rename(place)
    except OSError as error:
        if error.errno in MAY_PASS or not place.exists():  # else a leaving engine wrote the same offset before
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sync(folder)


def forget_after(folder: Path, offset: int) -> None:
    """Remove the checkpoints of later offsets. The training goes back to ``offset`` and will reach those again."""
    for path in every(folder):
        if path.name > name_of(offset):
            shutil.rmtree(path, ignore_errors=True)
    _point_to(folder, name_of(offset))


def keep_newest(folder: Path) -> None:
    """Remove all checkpoints but the newest whole one, because the training is over. That one stays with its results:
    another job may begin from it."""
    kept = newest(folder)
    if kept is None:
        return
    for path in every(folder):
        if path != kept.path:
            shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path) -> Path:
    """Move all checkpoints to a new folder beside ``folder``, because they belong to another training.

    ``folder`` itself stays, with the file of the fence in it.

    Returns:
        The new folder.
    """
    number = 1
    while (place := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    place.mkdir()
    for path in (*every(folder), folder / _LATEST):
        if path.exists():
            path.rename(place / path.name)
    return place


def _refuse_if_shut_out(folder: Path, fence: int) -> None:
    """Raise CheckpointError if a later attempt writes here now. It may run on a node that this attempt cannot reach."""
    try:
        lowest = int((folder / FENCE_FILE).read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{FENCE_FILE} cannot be read, so nothing is written ({error})") from None
    if lowest > fence:
        raise CheckpointError(f"attempt {fence} is shut out: attempt {lowest} writes here now")


def _point_to(folder: Path, name: str) -> None:
    """Write the newest checkpoint's name to ``latest``, for people and scripts; OpenEDT does not read it."""
    with contextlib.suppress(OSError):
        write_whole(folder / _LATEST, name + "\n", durable=False)


def _clear_drafts(folder: Path, offset: int, fence: int) -> None:
    """Remove drafts of offsets up to ``offset`` or of lower fences. Most of their writers were killed; a writer that
    still runs fails when it next touches its draft."""
    for path in list(folder.iterdir()):
        found = _DRAFT.fullmatch(path.name)
        if found and (int(found[1]) <= offset or int(found[2]) < fence):
            shutil.rmtree(path, ignore_errors=True)


def _prune(folder: Path, offset: int, equal_at: int | None) -> None:
    """Remove old checkpoints. The newest ``KEEP`` whole ones stay, and the newest whole one up to ``equal_at``. The one
    of ``offset`` always stays: it was just written and is known to be whole."""
    found = every(folder)
    whole = [path for path in found if path.name <= name_of(offset) or is_whole(path)]  # do not count torn ones
    equal = [path for path in whole if equal_at is not None and path.name <= name_of(equal_at)]
    kept = {*whole[-KEEP:], *equal[-1:]}
    for path in found:
        if path not in kept and path.name != name_of(offset):
            shutil.rmtree(path, ignore_errors=True)
