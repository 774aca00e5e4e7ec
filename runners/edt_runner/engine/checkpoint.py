"""Recovery checkpoints: all that a training is, on disk, free of the number of engines. Room: runners; files only.

A checkpoint is a folder ``at-<tick>``: ``state.safetensors`` and ``manifest.json``, which is written last and
holds the digests of the other and of itself. It is written beside its place and renamed into it, so a folder with
the right name is whole; what is torn all the same (a full disk, a flipped bit) is told by its digests and passed
over. Writers of a job may follow each other faster than the disk: each has drafts of its own, and under a fence
that is shut out nothing is written. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edt_runner.contract import FENCE_FILE
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.errors import CheckpointError
from edt_runner.storage import MAY_PASS, NO_ROOM, free_bytes

FORMAT = 2
KEEP = 3
"""Newest checkpoints that are kept."""
_STATE, _MANIFEST, _LATEST, _OWN_DIGEST = "state.safetensors", "manifest.json", "latest", "sha256"
_NAME = re.compile(r"at-(\d{10})")
_DRAFT = re.compile(r"\.at-(\d{10})\.(\d+)-.*\.tmp")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    tick: int
    manifest: Mapping[str, Any]

    @property
    def state_file(self) -> Path:
        return self.path / _STATE


def write(
    folder: Path,
    tick: int,
    manifest: Mapping[str, Any],
    write_state: Callable[[Path], str | None],
    *,
    who: str = "",
    equal_at: int | None = None,
) -> Path:
    """Write the checkpoint of position ``tick`` durably, under the fence that ``manifest`` names.

    Writing a position that is there already does nothing: equal positions hold equal states.

    Args:
        write_state: writes the tensors to a path; returns the file's SHA-256 if it knows it.
        who: the engine that writes.
        equal_at: the newest position at which all engines are known to have held the same; of the checkpoints up to
            there the newest is kept, too.

    Raises:
        CheckpointError: the attempt is shut out.
        OSError: what the disk says, of syncing too; nothing is left of the draft.
    """
    fence, place = int(manifest["fence"]), folder / _name(tick)
    _refuse_if_shut_out(folder, fence)
    was_there = place.exists()
    if _is_whole(place):
        _sync(folder)  # whoever has put it there may have been told by the disk that its name is not kept
    else:
        folder.mkdir(parents=True, exist_ok=True)
        if was_there:  # and is torn; what has come meanwhile is another engine's, and whole
            shutil.rmtree(place, ignore_errors=True)
        _write_or_make_room(place, {**manifest, "format": FORMAT, "tick": tick}, write_state, who, equal_at)
    _point_to(folder, place.name)
    _prune(folder, tick, equal_at)
    return place


def _write_or_make_room(
    place: Path,
    manifest: Mapping[str, Any],
    write_state: Callable[[Path], str | None],
    who: str,
    equal_at: int | None,
) -> None:
    """On a full disk the older checkpoints make room for this one, down to the newest that is whole and the newest up
    to ``equal_at``."""
    try:
        _write(place, manifest, write_state, who)
    except OSError as error:
        if error.errno not in NO_ROOM or not _leave_only_the_newest(place.parent, equal_at):
            raise
        _write(place, manifest, write_state, who)


def _leave_only_the_newest(folder: Path, equal_at: int | None) -> bool:
    """Remove all checkpoints but the newest whole one and the newest whole one up to ``equal_at``; False: that would
    not make room for another one."""
    kept = newest(folder)
    if kept is None:
        return False
    equal = newest(folder, most=equal_at) if equal_at is not None else None
    stay = {kept.path, equal.path if equal is not None else kept.path}
    others = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path not in stay]
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
    folder, tick, fence = place.parent, manifest["tick"], manifest["fence"]
    _clear_drafts(folder, tick, fence)
    draft = folder / f".{place.name}.{fence}-{who or os.getpid()}.tmp"
    draft.mkdir()
    try:
        digest = write_state(draft / _STATE)
        _sync(draft / _STATE)
        size = (draft / _STATE).stat().st_size
        whole = {**manifest, "files": {_STATE: {"sha256": digest or _digest(draft / _STATE), "bytes": size}}}
        (draft / _MANIFEST).write_text(json.dumps({**whole, _OWN_DIGEST: _digest_of(whole)}, indent=1))
        _sync(draft / _MANIFEST)
        _sync(draft)
        crash_point(CrashPoint.ENGINE_CHECKPOINT, at=tick, who=who)
        _refuse_if_shut_out(folder, fence)
        draft.rename(place)
    except OSError as error:
        if error.errno in MAY_PASS or not place.exists():  # else another engine, as it left, was at the same position
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _sync(folder)


def newest(
    folder: Path, *, most: int | None = None, note: Callable[[str], None] = lambda text: None
) -> Checkpoint | None:
    """The checkpoint of the highest position, ``most`` at most, that is whole; ``note`` hears of each that is not."""
    if not folder.is_dir():
        return None
    found = sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
    for path in found:
        if most is not None and path.name > _name(most):
            continue
        try:
            return _verify(path)
        except CheckpointError as error:
            note(f"checkpoint {path.name} is passed over: {error}")
    return None


def forget_after(folder: Path, tick: int) -> None:
    """Remove the checkpoints of later positions: the training goes back to ``tick``, and will come by them again."""
    for path in list(folder.iterdir()):
        if _NAME.fullmatch(path.name) and path.name > _name(tick):
            shutil.rmtree(path, ignore_errors=True)
    _point_to(folder, _name(tick))


def set_aside(folder: Path) -> Path:
    """Move all checkpoints of a training that is not this one out of the way; returns where they went.

    The folder itself stays, with the fence in it.
    """
    number = 1
    while (place := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    place.mkdir()
    for path in list(folder.iterdir()):
        if _NAME.fullmatch(path.name) or path.name == _LATEST:
            path.rename(place / path.name)
    return place


def _verify(path: Path) -> Checkpoint:
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"format {manifest['format']}, this release reads {FORMAT}")
        if manifest.pop(_OWN_DIGEST) != _digest_of(manifest):
            raise CheckpointError(f"{_MANIFEST} is not what was written")
        for name, facts in manifest["files"].items():
            if (path / name).stat().st_size != facts["bytes"] or _digest(path / name) != facts["sha256"]:
                raise CheckpointError(f"{name} is not what was written")
        return Checkpoint(path, int(manifest["tick"]), manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"unreadable ({error})") from None


def _refuse_if_shut_out(folder: Path, fence: int) -> None:
    """A later attempt may write here by now, on a node that no message from this one reaches."""
    try:
        lowest = int((folder / FENCE_FILE).read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{FENCE_FILE} cannot be read, so nothing is written ({error})") from None
    if lowest > fence:
        raise CheckpointError(f"attempt {fence} is shut out: attempt {lowest} writes here now")


def _point_to(folder: Path, name: str) -> None:
    """``latest`` names the newest checkpoint; for people and scripts, we look at the folders."""
    draft = folder / f".{_LATEST}.tmp"
    with contextlib.suppress(OSError):
        draft.write_text(name + "\n")
        draft.replace(folder / _LATEST)


def _clear_drafts(folder: Path, tick: int, fence: int) -> None:
    """Remove drafts that ``tick`` makes useless: most of their writers were killed, the others find them gone."""
    for path in list(folder.iterdir()):
        found = _DRAFT.fullmatch(path.name)
        if found and (int(found[1]) <= tick or int(found[2]) < fence):
            shutil.rmtree(path, ignore_errors=True)


def _prune(folder: Path, tick: int, equal_at: int | None) -> None:
    """Keep the newest, the newest up to ``equal_at``, and ``tick`` in any case, which was just written and so is known
    to be whole."""
    found = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    whole = [path for path in found if path.name <= _name(tick) or _is_whole(path)]  # torn ones are not to count
    equal = [path for path in whole if equal_at is not None and path.name <= _name(equal_at)]
    kept = {*whole[-KEEP:], *equal[-1:]}
    for path in found:
        if path not in kept and path.name != _name(tick):
            shutil.rmtree(path, ignore_errors=True)


def _is_whole(path: Path) -> bool:
    try:
        _verify(path)
    except CheckpointError:
        return False
    return True


def _name(tick: int) -> str:
    return f"at-{tick:010d}"


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
