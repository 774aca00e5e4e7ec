"""Room: api, CLI. A file that holds a secret. Touches that file and its folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_secret(path: Path, secret: str) -> None:
    """Put a secret into a file that nobody else can read, at no moment. Several processes may do so at once."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(secret + "\n")
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
