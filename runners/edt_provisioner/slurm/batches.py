"""The pool's own files: which node each job of an array is, and the nodes' tokens.

A folder for each array, ``<EDT_HOME>/pools/<pool>/<batch>``, is written before Slurm is asked and named in the jobs'
names, so that whoever is started next finds every node, also where Slurm's answer was lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pwd
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edt_contract.durable import write_whole
from edt_provisioner.errors import BadSetting

log = logging.getLogger(__name__)

_KEEP_SECONDS = 86_400.0
"""Seconds for which the output of nodes that are over is kept."""
_NAME = re.compile(r"[0-9a-f]{8}")
_FILE = "nodes.json"


@dataclass(frozen=True)
class Batch:
    """One array of jobs."""

    id: str
    nodes: tuple[str, ...]
    """Names by index."""
    user: str | None
    """The user of Slurm whose jobs they are; None: the provisioner's."""
    job: str | None = None
    """The array's number; None: Slurm's answer was not read."""
    over: tuple[int, ...] = ()
    """Indices of nodes that are gone and that the platform has been told of."""
    made: float = 0.0
    """When it was written, in seconds since 1970."""


class Batches:
    """The folders of one pool.

    Args:
        folder: the pool's folder.
        as_user: how files are given to users: ``no``, ``sudo`` or ``jwt``.

    Raises:
        BadSetting: another provisioner keeps this pool.
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, as_user: str) -> None:
        self._folder, self._as_user = folder, as_user
        shared = as_user != "no"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711 if shared else 0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise BadSetting(f"EDT_POOL: another provisioner keeps the pool in {folder}") from None

    def close(self) -> None:
        os.close(self._lock)

    def all(self) -> list[Batch]:
        """All batches, oldest first."""
        found = []
        for path in self._folder.iterdir():
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    given = json.loads((path / _FILE).read_text())
                    lists = {name: tuple(given[name]) for name in ("nodes", "over")}
                    found.append(Batch(**{**given, **lists}))
        return sorted(found, key=lambda batch: (batch.made, batch.id))

    def token_path(self, batch: Batch) -> str:
        """Path of the nodes' tokens, with ``%a`` for the index."""
        return str(self._folder / batch.id / "%a.token")

    def output_path(self, batch: Batch) -> str:
        """Path of the jobs' output, with ``%a`` for the index."""
        return str(self._folder / batch.id / "%a.log")

    def add(self, nodes: Sequence[str], tokens: Sequence[str], user: str | None) -> Batch:
        """Write a batch that Slurm will be asked for.

        Raises:
            OSError: a file cannot be written, or not be given to the user.
        """
        batch = Batch(secrets.token_hex(4), tuple(nodes), user, made=time.time())
        folder = self._folder / batch.id
        folder.mkdir(mode=0o700)
        if user is not None:
            folder.chmod(0o1733)  # the user's jobs write here; nobody lists the names, nor removes what is not his
        try:
            self.write(batch)
            for index, token in enumerate(tokens):
                self._give(folder / f"{index}.token", token + "\n", user)
        except OSError:
            self.drop(batch)
            raise
        return batch

    def write(self, batch: Batch) -> None:
        write_whole(self._folder / batch.id / _FILE, json.dumps(asdict(batch)) + "\n", mode=0o600)

    def drop(self, batch: Batch) -> None:
        """Remove a batch that Slurm does not know."""
        shutil.rmtree(self._folder / batch.id, ignore_errors=True)

    def finish(self, batch: Batch, indices: Sequence[int]) -> Batch:
        """Remember that these nodes are over, and remove their tokens."""
        for index in indices:
            (self._folder / batch.id / f"{index}.token").unlink(missing_ok=True)
        batch = replace(batch, over=tuple(sorted({*batch.over, *indices})))
        self.write(batch)
        return batch

    def sweep(self, batches: Sequence[Batch]) -> None:
        """Remove what is left of batches that are over for long."""
        before = time.time() - _KEEP_SECONDS
        for batch in batches:
            path = self._folder / batch.id / _FILE
            with contextlib.suppress(OSError):
                if len(batch.over) == len(batch.nodes) and path.stat().st_mtime < before:
                    self.drop(batch)

    def _give(self, path: Path, text: str, user: str | None) -> None:
        """Write a file that only this user can read. sudo adds the caller's umask to its own."""
        if user is None or self._as_user == "jwt":
            write_whole(path, text, mode=0o600)
            if user is not None:
                known = pwd.getpwnam(user)
                os.chown(path, known.pw_uid, known.pw_gid)
            return
        done = subprocess.run(
            ["sudo", "-n", "-u", user, "tee", str(path)],
            input=text,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            umask=0o077,
            timeout=20,
            check=False,
        )
        if done.returncode != 0:
            raise PermissionError(f"sudo -u {user} tee: {done.stderr.strip()[-200:]}")
