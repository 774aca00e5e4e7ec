"""The folders of this node in which jobs keep what ``torch.compile`` has made, so that later engines need not compile.

What lies in such a folder is code that engines load. So each user of the platform has folders of his own, which jobs of
others do not see in their containers. Under the process launcher all jobs run as one Unix user; there the folders only
keep apart what belongs to different users, as the jobs' own folders do. Images have folders of their own, because code
that one image has compiled may need libraries that another one lacks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import shutil
import stat
import time
from pathlib import Path

from edt_contract.attempt import AttemptSpec

log = logging.getLogger(__name__)

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""torch's own variable. A job that sets it keeps its value."""
_KEPT_SECONDS = 30 * 86400.0
"""Seconds for which a folder stays that no attempt has been given."""


def with_folder(spec: AttemptSpec, root: Path, user: tuple[int, int] | None = None) -> tuple[AttemptSpec, Path | None]:
    """Make the folder for an attempt's engines, and name it in the attempt's environment.

    Folders that have not been used for a month are removed. If the folder cannot be made, the attempt goes without:
    its engines compile into a temporary folder.

    Args:
        spec: the attempt.
        root: the folder in which all these folders lie. Only the agent writes to it.
        user: uid and gid of the job's code; None: those of this process.

    Returns:
        The spec with the variable, and the folder. The spec as it was, and None, if the attempt gets no folder: a gang,
        a job that names a folder itself, or a spec that does not say whose job it is.
    """
    if spec.gang is not None or not spec.owner or VARIABLE in spec.environ:
        return spec, None
    uid, gid = user or (os.getuid(), os.getgid())
    whose = hashlib.sha256(f"{spec.owner}\n{spec.image}".encode()).hexdigest()[:16]
    folder = root / f"{whose}-{uid}"
    try:
        _make(folder, uid, gid)
    except OSError as error:
        log.warning("%s keeps no compiled models: %s: %s", spec.job, folder, error.strerror or error)
        return spec, None
    _remove_unused(root, time.time() - _KEPT_SECONDS)
    return dataclasses.replace(spec, environ={**spec.environ, VARIABLE: str(folder)}), folder


def _make(folder: Path, uid: int, gid: int) -> None:
    """Make a folder that only ``uid`` can read, and note that it is used now.

    Raises:
        OSError: it cannot be made, or something else lies there.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != uid:
            os.fchown(handle, uid, gid)
        os.fchmod(handle, stat.S_IRWXU)
        os.utime(handle)
    finally:
        os.close(handle)


def _remove_unused(root: Path, before: float) -> None:
    """Remove the folders that were last used before that time, in seconds since 1970."""
    with contextlib.suppress(OSError):
        for folder in list(root.iterdir()):
            if folder.lstat().st_mtime < before:
                shutil.rmtree(folder, ignore_errors=True)
