"""Packs a script or a folder into the archive that is submitted. Reads the disk, writes one temporary file."""

from __future__ import annotations

import ast
import sys
import tarfile
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edt_cli.errors import CannotStart

LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".DS_Store"})
"""Names of files and folders that never are code of a job."""
_MOST_NAMED = 5
_ANYWAY = "--unchecked leaves that to the server"


@dataclass(frozen=True)
class Archive:
    """The archive that is submitted."""

    file: IO[bytes]
    """The archive, positioned at its beginning. The file is deleted when it is closed."""
    name: str
    main: str
    """The script that the job runs; empty: it runs a command."""
    model_dir: str | None
    """Folder inside the archive in which the job starts; None means the top."""


def pack(path: Path, main: str | None, *, checked: bool = True, command: bool = False) -> Archive:
    """Pack a script, or a folder with all its content.

    Args:
        path: the script or the folder.
        main: the script of a folder; default ``main.py``, or else the only Python file at the top of the folder.
        checked: whether to check that there is a script and that this Python can parse it.
        command: whether the job runs a command instead of the script, which may then be any file.

    Raises:
        CannotStart: there is no such script, it cannot be parsed, or it cannot be packed.
    """
    if command and main is not None:
        raise CannotStart("--main names the script to run, and --user-cmd a command in its place: give one of them")
    if path.is_dir():
        name = path.resolve().name
        if command:
            return Archive(_write_tar(path, name), f"{name}.modelDir.tar", "", name)
        main = main or _only_script(path, checked=checked)
        if main and not (path / main).is_file():
            raise CannotStart(f"{path} has no {main}: name the script to run with --main")
        if checked:
            _check(path / main)
        return Archive(_write_tar(path, name), f"{name}.modelDir.tar", main, name)
    if not path.is_file():
        raise CannotStart(f"{path} does not exist: name a script, or a folder with --main")
    if main is not None:
        raise CannotStart(f"--main is for folders, and {path} is a script")
    if checked and not command:
        _check(path)
    return Archive(_write_tar(path, path.name), f"{path.stem}.modelDir.tar", "" if command else path.name, None)


def _only_script(folder: Path, *, checked: bool) -> str:
    """Return the name of the script that a folder runs if its user names none; "": it has no Python file.

    Raises:
        CannotStart: it has no ``main.py`` and several other Python files; or ``checked``, and it has none.
    """
    if (folder / "main.py").is_file():
        return "main.py"
    try:
        found = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".py" and entry.is_file())
    except OSError as error:
        raise CannotStart(f"{folder} cannot be read: {error.strerror or error}") from error
    if len(found) == 1:
        return found[0]
    if not found and not checked:
        return ""
    others = f" but {', '.join(found[:_MOST_NAMED])}{' …' if len(found) > _MOST_NAMED else ''}" if found else ""
    way_out = "name the script to run with --main" if found else f"the job has no script to run. {_ANYWAY}"
    raise CannotStart(f"{folder} has no main.py{others}: {way_out}")


def _check(script: Path) -> None:
    """Check that the script is Python, so that a job does not wait for slots only to fail on them.

    Raises:
        CannotStart: the script cannot be read, or this Python cannot parse it.
    """
    if script.suffix != ".py":
        raise CannotStart(f"{script} is no Python script: its name does not end in .py. {_ANYWAY}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the job's log will hold Python's warnings
            ast.parse(script.read_bytes(), str(script))
    except OSError as error:
        raise CannotStart(f"{script} cannot be read: {error.strerror or error}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise CannotStart(f"{script}{line}: {what}; {version} cannot read it. {_ANYWAY}") from error


def _write_tar(root: Path, name: str) -> IO[bytes]:
    """Write a gzipped tar of regular files and folders. Links are replaced by what they point to."""
    file = tempfile.TemporaryFile(prefix="edt-submit-")  # noqa: SIM115  the caller closes it
    try:
        with tarfile.open(fileobj=file, mode="w:gz", dereference=True, compresslevel=1) as archive:
            _add(archive, root, name, frozenset())
    except BaseException as error:
        file.close()
        if not isinstance(error, OSError):
            raise
        raise CannotStart(f"{error.filename or root} cannot be packed: {error.strerror or error}") from error
    file.seek(0)
    return file


def _add(archive: tarfile.TarFile, path: Path, name: str, above: frozenset[Path]) -> None:
    """Add a file, or a folder with its content.

    ``above`` holds the real paths of the folders around it, because a link may lead to one of them.
    """
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
