"""The fence file: how an attempt that no message reaches learns that it is over. This module touches this file only.

``<job>/checkpoint/fence`` holds the lowest fence that may still live. Supervisors read the file once a second, because
the storage can reach a node that messages do not reach. A supervisor with a lower fence kills all its processes, and no
checkpoint is written under a lower fence.

These rules make the file reliable:

* The file is raised only for what is committed. An attempt ends in the database first, with ``jobs.fence_due``. The
  scheduler's next look writes the file, then notes the time and clears the mark. A crash in between leaves the mark,
  and the file is written again. The order is never the other way round: a file ahead of the database would kill an
  attempt that is not over.
* The next attempt starts FENCE_SECONDS after the file was written, not after the decision.
* An attempt that opens writes its own fence before it is committed. This shuts out only lower fences, and the database
  knows already that these attempts are over. If the commit fails, the fence was never given, and the next attempt opens
  with the same number.
* The file is written without a lock, because a disk may be slow, and its number should only grow. But a scheduler may
  be suspended between reading the file and replacing it, while another scheduler raises the file. The first one then
  lowers the file. It notices this when it notes what it has done, and has the file raised again (``reconcile``).
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
"""How long after the file was written the next attempt may start. Supervisors read the file once a second."""


def raise_to(checkpoints: Path, fence: int) -> None:
    """Let only attempts from ``fence`` on live from now on. The file is durable when this returns.

    If the folder is gone, the job was deleted, and nothing is written.

    Raises:
        OSError: The file cannot be written.
    """
    if not checkpoints.is_dir():
        return
    # The job owns the folder and may have put links or pipes there: follow no link, and wait for no pipe.
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
    """The lowest fence that may live; 0: all fences may live.

    Raises:
        OSError: The file cannot be read.
    """
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
