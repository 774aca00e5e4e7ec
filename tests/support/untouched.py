"""Sees to it that no file of a home is touched by who holds the writer's lock.

Python tells of most of what is done with files by audit events; of ``fsync`` and of looking at a file it does not, so
these are wrapped. SQLite's own files are opened by its library, which is not seen here and is not meant.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from edt_scheduler.store.database import Database

_OF_OS = "rename mkdir rmdir remove link symlink listdir scandir truncate chmod utime"
_OTHERS = ("open", "shutil.rmtree", "shutil.move", "shutil.copyfile", "shutil.copytree", "tempfile.mkstemp")
EVENTS = frozenset({*_OTHERS, *(f"os.{name}" for name in _OF_OS.split())})
WRAPPED = ("fsync", "fdatasync", "stat", "lstat", "access", "statvfs", "readlink")
_holding = threading.local()
_seen: list[str] = []
_homes: list[str] = []


def _note(what: str, *given: Any) -> None:
    if not getattr(_holding, "lock", False) or not _homes or getattr(_holding, "noting", False):
        return
    names = [os.fsdecode(each) for each in given if isinstance(each, str | bytes | os.PathLike)]
    if what != "fsync" and not any(name.startswith(home) for name in names for home in _homes):
        return
    _holding.noting = True  # a traceback reads files, too
    try:
        where = [line for line in traceback.format_stack() if "edt_" in line][-3:]
        _seen.append(f"{what} {names}\n{''.join(where)}")
    finally:
        _holding.noting = False


@functools.cache
def _hook() -> None:
    """Once a process: there is no way to take it away."""
    sys.addaudithook(lambda event, given: _note(event, *given) if event in EVENTS else None)


@contextmanager
def guarded(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails at the end of the block where a file below ``home`` was touched under the lock, with who did it."""
    _hook()
    transaction: Callable[..., Any] = Database.transaction

    @contextmanager
    def noted(self: Database, **options: bool) -> Iterator[Connection]:
        with transaction(self, **options) as tx:
            _holding.lock = True
            try:
                yield tx
            finally:
                _holding.lock = False

    def wrapped(name: str) -> Callable[..., Any]:
        does: Callable[..., Any] = getattr(os, name)

        def noting(*given: Any, **named: Any) -> Any:
            _note(name, *given)
            return does(*given, **named)

        return noting

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", noted)
        for name in WRAPPED:
            patch.setattr(os, name, wrapped(name))
        _homes.append(str(home))
        try:
            yield
        finally:
            _homes.clear()
            found, _seen[:] = list(_seen), []
    assert not found, f"touched under the writer's lock:\n{chr(10).join(found)}"
