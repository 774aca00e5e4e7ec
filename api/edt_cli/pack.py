"""Room: api, CLI. A script or a folder as the archive that is handed in. Reads the disk, writes one temporary
file."""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edt_cli.errors import CannotStart

LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".DS_Store"})
"""Names that are never code of a job."""


@dataclass(frozen=True)
class Parcel:
    """What is handed in."""

    file: IO[bytes]
    """The archive, from its beginning; gone when closed."""
    name: str
    main: str
    model_dir: str | None
    """Folder inside the archive in which the job starts; None: at its top."""


def pack(path: Path, main: str | None) -> Parcel:
    """A script alone, or a folder with all that is in it. ``main`` names the script of a folder."""
    if path.is_dir():
        main = main or "main.py"
        if not (path / main).is_file():
            raise CannotStart(f"{path} has no {main}: name the script to run with --main")
        name = path.resolve().name
        return Parcel(_archive([(path, name)]), f"{name}.modelDir.tar", main, name)
    if not path.is_file():
        raise CannotStart(f"{path} does not exist: name a script, or a folder with --main")
    if main is not None:
        raise CannotStart(f"--main is for folders, and {path} is a script")
    return Parcel(_archive([(path, path.name)]), f"{path.stem}.modelDir.tar", path.name, None)


def _archive(roots: list[tuple[Path, str]]) -> IO[bytes]:
    """A gzip tar of regular files and folders. What a link points to is packed in its place."""
    file = tempfile.TemporaryFile(prefix="edt-submit-")  # noqa: SIM115  its reader closes it
    try:
        with tarfile.open(fileobj=file, mode="w:gz", dereference=True, compresslevel=1) as archive:
            for root, name in roots:
                _add(archive, root, name, frozenset())
    except BaseException as error:
        file.close()
        if not isinstance(error, OSError):
            raise
        raise CannotStart(f"{error.filename or roots[0][0]} cannot be packed: {error.strerror or error}") from error
    file.seek(0)
    return file


def _add(archive: tarfile.TarFile, path: Path, name: str, above: frozenset[Path]) -> None:
    """Add a file, or a folder and what is in it; ``above`` are the real folders it lies in, since a link may lead
    up."""
    if path.is_dir():
        real = path.resolve()
        if real in above:
            raise CannotStart(f"{path} is a link to a folder that it lies in")
        archive.add(path, name, recursive=False)
        for entry in sorted(path.iterdir()):
            if entry.name not in LEFT_OUT and entry.suffix != ".pyc":
                _add(archive, entry, f"{name}/{entry.name}", above | {real})
    elif path.is_file():
        archive.add(path, name, recursive=False)
