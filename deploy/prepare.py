"""Makes the files and folders that `docker-compose up` needs besides ``.env``: ``make secrets``. With --kubernetes it
makes the files of the Secrets of deploy/kubernetes, and nothing else: ``make kubernetes-secrets``.

The files hold the passwords, the join token and the secret key, each in a file of its own. Existing files and folders
stay as they are. If root runs the script, all new files and folders except ``secrets`` itself are given to the user
that ``.env`` names (EDT_UID, EDT_GID). If another user runs it, the script writes that user's ids to ``.env``. No
password is printed or written elsewhere.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("postgres-password", "valkey-password", "admin-password", "join-token")
KEY = "secrets/secret-key"
PRIVATE, PUBLIC = 0o700, 0o755
FOLDERS = {"EDT_HOME": PRIVATE, "EDT_DATA_FS": PUBLIC, "EDT_RUNTIME_DIR": PRIVATE}


class Environment:
    """The file ``.env``: reads and changes its settings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = path.read_text()

    def __getitem__(self, name: str) -> str:
        found = re.findall(rf"^{name}=(.*)$", self._text, re.MULTILINE)
        return found[-1].strip() if found else ""

    def put(self, name: str, value: str) -> None:
        """Change a setting, and print the change."""
        if self[name] == value:
            return
        text, count = re.subn(rf"^{name}=.*$", f"{name}={value}", self._text, flags=re.MULTILINE)
        self._text = text if count else f"{text.rstrip()}\n{name}={value}\n"
        self._path.write_text(self._text)
        print(f"{self._path}: {name}={value}")


def main() -> int:
    """Run the script. Return exit status 0, or 2 after one sentence if something could not be made."""
    parser = argparse.ArgumentParser(prog="deploy/prepare.py", description="Make passwords and folders.")
    parser.add_argument("--directory", type=Path, default=ROOT, help="where .env lies")
    parser.add_argument("--kubernetes", type=Path, metavar="FOLDER", help="make the files of the Secrets there alone")
    given = parser.parse_args()
    directory: Path = given.directory
    try:
        if given.kubernetes is not None:
            make_secrets(given.kubernetes)
        else:
            prepare(directory)
    except FileNotFoundError as error:
        return refuse(f"{error.filename} is missing: cp .env.example .env")
    except PermissionError as error:
        return refuse(
            f"{error.filename} may not be made or changed by this user: choose another in .env, or run as root"
        )
    except ValueError as error:
        return refuse(str(error))
    return 0


def prepare(directory: Path) -> None:
    """Make the folders and passwords, and set what depends on this machine in ``.env``.

    Raises:
        FileNotFoundError: ``.env`` or the socket of Docker is missing.
        PermissionError: this user may not make or change a file.
        ValueError: a setting is wrong.
    """
    environment = Environment(directory / ".env")
    if os.getuid() != 0:
        environment.put("EDT_UID", str(os.getuid()))
        environment.put("EDT_GID", str(os.getgid()))
    owner = number(environment, "EDT_UID"), number(environment, "EDT_GID")
    if "docker" in environment["COMPOSE_PROFILES"].split(","):
        socket = Path(environment["EDT_DOCKER_SOCKET"] or "/var/run/docker.sock")
        environment.put("EDT_DOCKER_GID", str(socket.stat().st_gid))
    for name, mode in FOLDERS.items():
        folder = Path(environment[name])
        if not folder.is_absolute():
            raise ValueError(f"{name}: {environment[name]!r}; it is a path that begins with /")
        make_folder(folder, mode, owner)
    make_folder(directory / "secrets", PRIVATE, (os.getuid(), os.getgid()))
    for name in NAMES:
        make_secret(directory / "secrets" / name, secrets.token_urlsafe(24) + "\n", owner)
    make_secret(directory / (environment["EDT_SECRET_KEY_FILE"] or KEY), secret_keys(environment), owner)
    print(f"the password of the user admin is in {directory / 'secrets' / 'admin-password'}")


def make_secrets(folder: Path) -> None:
    """Make the passwords, the join token and the secret key in ``folder``, for this user alone. Existing files stay.

    Raises:
        PermissionError: this user may not make a file there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = os.getuid(), os.getgid()
    for name in NAMES:
        make_secret(folder / name, secrets.token_urlsafe(24) + "\n", own)
    make_secret(folder / Path(KEY).name, new_key(), own)
    print(f"the password of the user admin is in {folder / 'admin-password'}")


def make_folder(folder: Path, mode: int, owner: tuple[int, int]) -> None:
    """Make a folder and give it to ``owner``. An existing folder keeps its content and its owner."""
    if folder.is_dir():
        return
    folder.mkdir(mode, parents=True)
    give(folder, owner)


def secret_keys(environment: Environment) -> str:
    """Return the keys with which the platform has sealed environments before, or a new key: 32 bytes in URL-safe
    base64.
    """
    before = Path(environment["EDT_HOME"]) / "secret-key"
    return before.read_text() if before.exists() else new_key()


def new_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode() + "\n"


def make_secret(path: Path, text: str, owner: tuple[int, int]) -> None:
    """Write a file that only its owner can ever read, even while it is being written. An existing file stays."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    give(draft, owner)
    draft.rename(path)


def give(path: Path, owner: tuple[int, int]) -> None:
    if os.getuid() == 0:
        os.chown(path, *owner)


def number(environment: Environment, name: str) -> int:
    """Return a setting that is the id of a user or group.

    Raises:
        ValueError: the setting is no number, or it is root's id 0.
    """
    if not environment[name].isdecimal() or int(environment[name]) == 0:
        raise ValueError(f"{name}: {environment[name]!r}; it is the number of a user or group, and not root's")
    return int(environment[name])


def refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
