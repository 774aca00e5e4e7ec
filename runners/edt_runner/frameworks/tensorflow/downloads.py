"""Makes Keras's downloads appear whole.

Driver and engines run the same script at the same time, so ``keras.datasets.mnist.load_data()`` may download one file
in several processes at once. Keras writes into the file itself, where another process finds half of it. Here a process
downloads into a file of its own beside it, which then takes the file's place.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

_WHERE = ("keras.src.utils.file_utils", "tf_keras.src.utils.data_utils")
"""The private modules whose ``urlretrieve`` is called by ``get_file``. Keras has no public way to change it."""


def appear_whole() -> None:
    """From now on, what Keras downloads in this process appears under its name when it is complete."""
    for name in _WHERE:
        module = sys.modules.get(name)
        fetch = getattr(module, "urlretrieve", None)
        if fetch is not None and not hasattr(fetch, "__wrapped__"):
            setattr(module, "urlretrieve", _whole(fetch))  # noqa: B010 - mypy knows no such name


def _whole(fetch: Callable[..., Any]) -> Callable[..., Any]:
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
