"""The fence file: how an attempt that nobody can reach learns that it is over. Touches that file.

``<job>/checkpoint/fence`` holds the lowest fence that may still live. Supervisors look once a second, on storage
that reaches where messages may not; one of a lower fence kills all it has, and no checkpoint is written under one.

When it is written decides what it is worth:

* Only for what is committed. An attempt ends in the database first, with ``jobs.fence_due``; the next look writes
  the file, and then notes the time and clears the mark. Whatever crashes between leaves the mark, and the file is
  written again. Never the other way round: a file ahead of the database would kill an attempt that was not over.
* The next attempt starts FENCE_SECONDS after the file, not after the decision.
* An attempt that opens writes its own fence before it is committed. That shuts out only what is below, of which
  the database knows already that it is over; if the commit fails the number was never given, and the next one
  opens with it again.
* Under no lock, since a disk may take its time, and never downwards. A scheduler that sleeps between looking at the
  file and replacing it, while another one raises it, lowers it again: it finds out when it notes what it has done,
  and has the file raised once more (``reconcile``).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from edt_contract.attempt import FENCE_FILE

_DRAFT = f"{FENCE_FILE}.tmp"
_MOST_BYTES = 32
FENCE_SECONDS = 5.0
"""So long after the file the next attempt may start: supervisors look once a second."""


def raise_to(checkpoints: Path, fence: int) -> None:
    """From here on only attempts from ``fence`` on may live. Durable when this returns; raises OSError.

    Where the folder is gone the job was deleted: nothing is left there that could be written to.
    """
    if not checkpoints.is_dir():
        return
    # The folder is the job's: what it may have put in the place of these names is neither followed nor waited for.
    folder = os.open(checkpoints, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if lowest(checkpoints) < fence:
            draft = f"{_DRAFT}.{os.getpid()}"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, made, 0o644, dir_fd=folder), "w") as file:
                file.write(f"{fence}\n")
                file.flush()
                os.fsync(file.fileno())
            if lowest(checkpoints) < fence:  # writing the draft may have taken long
                os.replace(draft, FENCE_FILE, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.unlink(draft, dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)


def lowest(checkpoints: Path) -> int:
    """The lowest fence that may live; 0: all."""
    try:
        handle = os.open(checkpoints / FENCE_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return 0
        raise
    try:
        return int(os.read(handle, _MOST_BYTES))
    except ValueError:
        return 0
    finally:
        os.close(handle)
