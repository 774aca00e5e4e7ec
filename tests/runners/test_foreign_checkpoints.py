"""Checkpoints that a job's own code has written: only what a checkpoint consists of is opened, and as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edt_contract.checkpoints import MANIFEST, OWN_DIGEST, STATE, CheckpointDamaged, digest, digest_of, verify
from support.whole_checkpoints import write_checkpoint


def rewritten(checkpoint: Path, **changes: Any) -> Path:
    """Change the manifest of a checkpoint, with the digest that it then must have."""
    manifest = json.loads((checkpoint / MANIFEST).read_text()) | changes
    del manifest[OWN_DIGEST]
    (checkpoint / MANIFEST).write_text(json.dumps({**manifest, OWN_DIGEST: digest_of(manifest)}))
    return checkpoint


def facts(path: Path) -> dict[str, object]:
    return {"sha256": digest(path), "bytes": path.stat().st_size}


def test_files_that_are_none_of_a_checkpoint_are_not_opened(tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path, 3)
    assert verify(rewritten(whole)).offset == 3
    secret = tmp_path / "secret"
    secret.write_text("secret")
    own = facts(whole / STATE)
    for files in ({}, {str(secret): facts(secret)}, {STATE: own, "../secret": facts(secret)}, {"/dev/zero": own}):
        with pytest.raises(CheckpointDamaged, match="names other files than"):
            verify(rewritten(whole, files=files))


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_links_pipes_and_devices_in_place_of_its_files_are_neither_followed_nor_read(tmp_path: Path, name: str) -> None:
    place = write_checkpoint(tmp_path, 3) / name
    place.rename(tmp_path / "moved")
    puts: list[Callable[[], None]] = [
        lambda: place.symlink_to(tmp_path / "moved"),
        lambda: os.mkfifo(place),
        place.mkdir,
    ]
    for put in puts:
        put()
        with pytest.raises(CheckpointDamaged):
            verify(place.parent)
        place.rmdir() if place.is_dir() else place.unlink()
    (tmp_path / "moved").rename(place)
    assert verify(place.parent).offset == 3


def test_a_manifest_is_read_up_to_a_size_and_a_depth(tmp_path: Path) -> None:
    manifest = write_checkpoint(tmp_path, 3) / MANIFEST
    text = manifest.read_text()
    os.truncate(manifest, 100 << 30)  # sparse
    with pytest.raises(CheckpointDamaged, match="more than 33554432 bytes"):
        verify(manifest.parent)
    for wrong in ("[" * 200_000, '{"format": ' + "9" * 5000 + "}", "[1]", text.encode().decode("latin-1") + "\0"):
        manifest.write_text(wrong)
        with pytest.raises(CheckpointDamaged):
            verify(manifest.parent)


@pytest.mark.parametrize("offset", [10**30, -1, True, "3", float("inf"), None])
def test_an_offset_that_is_none_is_damage(tmp_path: Path, offset: object) -> None:
    with pytest.raises(CheckpointDamaged):
        verify(rewritten(write_checkpoint(tmp_path, 3), offset=offset))


@pytest.mark.parametrize(("step", "taken"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, None), (True, None), ("3", None)])
def test_a_step_is_a_number_that_the_database_holds_or_none(tmp_path: Path, step: object, taken: int | None) -> None:
    assert verify(rewritten(write_checkpoint(tmp_path, 3), step=step)).step == taken
