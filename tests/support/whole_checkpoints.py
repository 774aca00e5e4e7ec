"""Recovery checkpoints as engines leave them, as far as the platform looks at them."""

from __future__ import annotations

import json
from pathlib import Path

from edt_contract.checkpoints import FORMAT, MANIFEST, OWN_DIGEST, STATE, digest, digest_of, name_of


def write_checkpoint(checkpoints: Path, offset: int, *, step: int | None = None, state: bytes = b"state") -> Path:
    """A whole checkpoint in a job's folder of checkpoints; its own folder."""
    place = checkpoints / name_of(offset)
    place.mkdir()
    (place / STATE).write_bytes(state)
    files = {STATE: {"sha256": digest(place / STATE), "bytes": len(state)}}
    manifest = {"format": FORMAT, "offset": offset, "fence": 1, "step": step or offset, "files": files}
    (place / MANIFEST).write_text(json.dumps({**manifest, OWN_DIGEST: digest_of(manifest)}))
    return place
