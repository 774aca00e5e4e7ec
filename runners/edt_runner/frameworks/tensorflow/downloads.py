"""Makes Keras's downloads appear whole.

Driver and engines run the same script at the same time, so ``keras.datasets.cifar10.load_data()`` may download and
unpack one file in several processes at once. Keras writes into the files themselves, where another process finds half
of them. Here a process downloads and unpacks into files of its own beside them, which then take their places.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

_WHERE = (
    ("keras.src.utils.file_utils", "extract_archive"),
    ("tf_keras.src.utils.data_utils", "_extract_archive"),
)
"""The private modules whose ``urlretrieve`` is called by ``get_file``, and the name of what unpacks an archive. Keras
has no public way to change them."""


def appear_whole() -> None:
    """From now on, what Keras downloads in this process appears under its name when it is complete."""
    for name, unpack in _WHERE:
        for function, whole in (("urlretrieve", _fetched_whole), (unpack, _unpacked_whole)):
            found = getattr(sys.modules.get(name), function, None)
            if found is not None and not hasattr(found, "__wrapped__"):
                setattr(sys.modules[name], function, whole(found))


def _fetched_whole(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fetch)
    def fetched(origin: str, target: str, *more: Any) -> None:  # Keras uses no result
        part = Path(f"{target}.{socket.gethostname()}-{os.getpid()}.part")
        try:
            fetch(origin, str(part), *more)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    return fetched


def _unpacked_whole(unpack: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(unpack)
    def unpacked(file_path: str, path: str = ".", archive_format: Any = "auto") -> bool:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder.parent if os.access(folder.parent, os.W_OK) else folder
        if beside.stat().st_dev != folder.stat().st_dev:  # files cannot be moved between file systems
            beside = folder
        with tempfile.TemporaryDirectory(prefix=".edt-", dir=beside, ignore_cleanup_errors=True) as own:
            done = unpack(file_path, own, archive_format)
            if done:
                _move(Path(own), folder)
        return done

    return unpacked


def _move(source: Path, to: Path) -> None:
    """Move everything in ``source`` into ``to``. A folder that is not there yet appears with all its files."""
    for entry in list(source.iterdir()):
        target = to / entry.name
        try:
            entry.replace(target)
        except OSError:
            if not entry.is_dir() or not target.is_dir():
                raise
            _move(entry, target)
