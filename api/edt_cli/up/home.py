"""EDT_HOME for `edt up`: its lock, its port, its join token, and the mark of its processes.

This module touches that folder and a short folder for sockets. It opens no database.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from edt_cli.errors import CannotStart
from edt_contract.durable import write_whole

DEFAULT_PORT = 9280
TAG_VARIABLE = "EDT_TAG"
PYTHON = (sys.executable, "-P", "-m")
"""-P: Python imports no module, such as a logging.py, from the folder in which `edt up` is typed."""


HomeOption = Annotated[Path | None, typer.Option(help="Folder for everything kept (EDT_HOME).")]


def home_folder(given: Path | None = None) -> Path:
    """Return the folder that ``--home`` names, or EDT_HOME, or ``edt`` in the XDG data folder."""
    if named := given or os.environ.get("EDT_HOME"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "edt"


def home_tag(home: Path) -> str:
    """Return the mark of a home. All paths to the same folder give the same mark."""
    return hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:16]


def remembered_port(home: Path) -> int | None:
    """Return the port that `edt up` last used in this home; None if there is none."""
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return None


class Home:
    """A home that this process can write.

    Raises:
        CannotStart: the folder cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tag = home_tag(path)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            (path / "run").mkdir(exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotStart(f"{path} cannot be written ({reason}): choose another with --home or EDT_HOME") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home's lock, so that only one `edt up` runs in it. The kernel frees the lock when this process ends.

        Raises:
            CannotStart: another `edt up` runs in this home.
        """
        handle = os.open(self.path / "run" / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                port = remembered_port(self.path)
                where = f" on port {port}" if port else ""
                raise CannotStart(
                    f"`edt up` runs already in {self.path}{where}: stop that one, or use another --home"
                ) from None
            yield
        finally:
            os.close(handle)

    def port(self, host: str, asked: int | None) -> int:
        """Choose the port to listen on and store it for the next start.

        The first of these counts: the port ``asked`` for, the stored port, 9280, any free port. The last two are only
        for the first start.

        Raises:
            CannotStart: the port is taken, or this process may not listen there.
        """
        port = asked or remembered_port(self.path)
        if port is None:
            port = DEFAULT_PORT if is_free(host, DEFAULT_PORT) else _any_port(host)
        elif not is_free(host, port):
            what = "" if asked else " that this home had before"
            raise CannotStart(f"port {port}{what} is taken on {host}: choose another with --port")
        write_whole(self.path / "port", f"{port}\n")
        return port

    def join_token(self) -> Path:
        """Return the file with the join token. Write EDT_JOIN_TOKEN to it, or make a token at the first start."""
        path = self.path / "join-token"
        if given := os.environ.get("EDT_JOIN_TOKEN"):
            write_whole(path, given + "\n", mode=0o600)
        elif not path.exists():
            write_whole(path, secrets.token_urlsafe(32) + "\n", mode=0o600)
        return path

    def sockets(self) -> Path:
        """Return a folder for sockets that only this user can read. Its path is short, since a socket's path has at
        most 107 bytes.

        Raises:
            CannotStart: the folder belongs to another user.
        """
        base = os.environ.get("XDG_RUNTIME_DIR")
        root = Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir())
        folder = root / f"edt-{os.getuid()}-{self.tag[:12]}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise CannotStart(f"{folder} belongs to somebody else: remove it, or set XDG_RUNTIME_DIR")
        folder.chmod(0o700)
        return folder


def is_free(host: str, port: int) -> bool:
    """Whether a server can listen there now. Lingering connections of an earlier server do not count.

    Raises:
        CannotStart: the address or the port is wrong, or this user may not listen there.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise CannotStart(f"--host {host}: {error.strerror or error}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except PermissionError as error:
            raise CannotStart(f"port {port} needs rights that this user has not: choose one above 1023") from error
        except OverflowError as error:
            raise CannotStart(f"port {port} is none: choose one from 1 to 65535") from error
        except OSError as error:
            if error.errno == 98:  # EADDRINUSE
                return False
            raise CannotStart(f"--host {host}: {error.strerror}") from error
    return True


def _any_port(host: str) -> int:
    family, kind, protocol, _, _ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
