"""EDT_HOME as `edt up` uses it: who may be in it, which port it had, which mark its processes bear.

Touches the folder and a short folder for sockets; opens no database.
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
"""-P: what lies in the folder in which `edt up` is typed, a logging.py say, is not imported."""


HomeOption = Annotated[Path | None, typer.Option(help="Folder for everything kept (EDT_HOME).")]


def home_folder(given: Path | None = None) -> Path:
    """The one that ``--home`` names, EDT_HOME, or ``edt`` in the XDG data folder."""
    if named := given or os.environ.get("EDT_HOME"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "edt"


def home_tag(home: Path) -> str:
    """The mark of a home: the same for every path that leads to it."""
    return hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:16]


def remembered_port(home: Path) -> int | None:
    """The port that `edt up` had in this home last."""
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return None


class Home:
    """A home that this process may write. Raises CannotStart where it may not."""

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
        """Hold the home: one `edt up` at a time. The kernel lets go when this process ends, however it does."""
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
        """The port to listen on: the one asked for, the one it had, or at first 9280 or a free one; remembered."""
        port = asked or remembered_port(self.path)
        if port is None:
            port = DEFAULT_PORT if is_free(host, DEFAULT_PORT) else _any_port(host)
        elif not is_free(host, port):
            what = "" if asked else " that this home had before"
            raise CannotStart(f"port {port}{what} is taken on {host}: choose another with --port")
        write_whole(self.path / "port", f"{port}\n")
        return port

    def join_token(self) -> Path:
        """The file with the token by which nodes join: EDT_JOIN_TOKEN's, or one made at the first start."""
        path = self.path / "join-token"
        if given := os.environ.get("EDT_JOIN_TOKEN"):
            write_whole(path, given + "\n", mode=0o600)
        elif not path.exists():
            write_whole(path, secrets.token_urlsafe(32) + "\n", mode=0o600)
        return path

    def sockets(self) -> Path:
        """A folder for sockets with a short path (theirs may have 107 bytes), for this user only."""
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
    """Whether one can listen there now. Connections of an earlier server that linger do not count."""
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
