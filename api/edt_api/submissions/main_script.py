"""Unpacks a submission's upload, finds its main script and checks it. Touches one folder.

Runs in the processes of ``concurrency.unpacking``, since it computes. Nothing of the upload is run.
"""

from __future__ import annotations

import shutil
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions.archives import unpack_file
from edt_contract.durable import sync

DEFAULT_MAIN = "main.py"
"""The main script if the client named ``--model-dir`` but no ``--model-main``."""
COMPILED_BYTES = 128 * 1024
"""A longer script is not compiled: that can take many seconds, and hundreds of megabytes."""
_MOST_NAMED = 5
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class Code:
    """What a client said of its code."""

    model_main: str
    """``--model-main``; empty: none was given."""
    model_dir: str | None
    script: str
    """The file's name if the upload is a bare script."""
    own_python: bool
    """Whether the job may run with another Python than this one."""
    has_command: bool = False
    """Whether the job runs a command in place of a main script."""


def prepare(upload: Path | bytes | None, into: Path, code: Code) -> tuple[str, str]:
    """Unpack the upload into the folder ``into``, which must not exist yet, and find the main script.

    Without an upload the folder is empty. A job that runs a command has no main script.

    Returns:
        The working directory and the main script in it, both relative; "" is the folder itself, or no script.

    Raises:
        ArchiveRefused: the upload cannot be unpacked.
        TooLarge: the upload exceeds a limit.
        ArgumentsInvalid: it has no such script, or Python cannot read it. Nothing is left of ``into``.
    """
    if upload is None:
        into.mkdir()
        sync(into.parent)
        return "", ""
    unpack_file(upload, into, code.script)
    try:
        if code.has_command:
            return working_folder(into, code.model_dir), ""
        folder, main = locate(into, code.model_dir, code.model_main or DEFAULT_MAIN)
        check(into / folder / main, main, compiled=not code.own_python)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return folder, main


def below(path: str) -> str | None:
    """Return ``path`` as a folder below a root, without a leading ``/`` and without ``.``; None if it has a ``..``."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return None if ".." in parts else "/".join(parts)


def locate(staged: Path, model_dir: str | None, model_main: str) -> tuple[str, str]:
    """Return the folder and the main script.

    Both are looked for as the client named them, and then by the last component of their paths, because ``dlicmd`` cuts
    the paths of what it packs. An archive may hold the folder itself or its content.

    Raises:
        ArgumentsInvalid: the upload has no such script, or no such folder.
    """
    mains = [path for path in (below(model_main), PurePosixPath(model_main).name) if path]
    if model_dir is not None and not below(PurePosixPath(model_dir).name):
        model_dir = None  # "." names no folder
    folders = list(_folders(staged, model_dir))
    for folder in folders:
        for main in mains:
            if (staged / folder / main).is_file():
                return folder, main
    if model_dir is not None and folders == [""] and (others := _names(path for path in _top(staged) if path.is_dir())):
        raise ArgumentsInvalid("--model-dir", repr(model_dir[:64]), f"a folder of the upload, which holds {others}")
    got = repr(model_main[:64])
    if any((staged / folder / main).is_dir() for folder in folders for main in mains):
        got += ", a folder"
    held = _names(path.relative_to(staged) for path in staged.rglob("*.py") if path.is_file())
    raise ArgumentsInvalid("--model-main", got, f"a file of the upload, which holds {held or 'no .py'}")


def working_folder(staged: Path, model_dir: str | None) -> str:
    """Return the folder in which a command starts: the one of ``--model-dir``, the only one at the top, or the upload.

    Raises:
        ArgumentsInvalid: the upload has folders, and none is the one that the client named.
    """
    if model_dir is not None and not below(PurePosixPath(model_dir).name):
        model_dir = None  # "." names no folder
    folders = list(_folders(staged, model_dir))
    if model_dir is None:
        return folders[-1]
    if folders == [""] and (others := _names(path for path in _top(staged) if path.is_dir())):
        raise ArgumentsInvalid("--model-dir", repr(model_dir[:64]), f"a folder of the upload, which holds {others}")
    return folders[0]


def check(path: Path, main: str, *, compiled: bool) -> None:
    """Refuse a main script that Python cannot read. Warnings are no errors.

    Args:
        path: the script.
        main: its name in the refusal.
        compiled: whether it is compiled, too.

    Raises:
        ArgumentsInvalid: the script is empty, is no text, or does not compile.
    """
    with path.open("rb") as script:
        source = script.read(COMPILED_BYTES + 1)
    if not source.strip():
        raise ArgumentsInvalid("--model-main", f"{main!r}, an empty file", "a Python script of the upload")
    if b"\0" in source:
        raise ArgumentsInvalid("--model-main", f"{main!r}, a binary file", "a Python script of the upload")
    if not compiled or len(source) > COMPILED_BYTES:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, main, "exec", dont_inherit=True)
    except SyntaxError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        place = f" line {error.lineno}" if error.lineno else ""
        text = f": {error.text.strip()[:_SHOWN_CHARACTERS]}" if error.text else ""
        got = f"{main!r}, which does not compile: {type(error).__name__},{place} {error.msg}{text}"
        raise ArgumentsInvalid("--model-main", got, f"a script that Python {version} can read") from None
    except (RecursionError, MemoryError):
        return  # nested too deeply for the stack of this process, which may be smaller than the job's


def _folders(staged: Path, model_dir: str | None) -> Iterator[str]:
    """Yield the folders that may hold the code, the most likely first; "" is the upload itself."""
    if model_dir is not None:
        for path in (below(model_dir), PurePosixPath(model_dir).name):
            if path and (staged / path).is_dir():
                yield path
    yield ""
    top = _top(staged)
    if model_dir is None and len(top) == 1 and stat.S_ISDIR(top[0].lstat().st_mode):
        yield top[0].name


def _top(staged: Path) -> list[Path]:
    return list(staged.iterdir())


def _names(paths: Iterator[Path]) -> str:
    """Return the first of these paths in a text: relative ones whole, others by their names."""
    held = sorted(path.name if path.is_absolute() else str(path) for path in paths)
    return ", ".join(held[:_MOST_NAMED]) + (" …" if len(held) > _MOST_NAMED else "")
