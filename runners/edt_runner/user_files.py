"""Files a user takes away, each whole or not there. Room: runners; writes in the folder it is given.

Two engines may write the same file at a time: one that leaves at the boundary that ends an epoch, and the one that is
first from there on and cannot know how far the other came. Both write the same state, so each has a draft of its own
and it does not matter whose is put in place last.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from edt_runner.contract import DRAFT_PREFIX

_TRIES = 10


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A place beside ``path`` for a file or a folder that is at ``path`` afterwards, instead of what was there before.

    Its name ends as ``path``'s does, for writers that tell a format by it. An error in the block leaves ``path`` as it
    was and nothing of the draft.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = f"{DRAFT_PREFIX}{uuid.uuid4().hex[:8]}-"
    draft = path.with_name(own + path.name)
    try:
        yield draft
        if draft.is_dir():
            _put_folder(draft, path, path.with_name(f"{own}old-{path.name}"))
        else:
            draft.replace(path)
    finally:
        _remove(draft)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed. Only where no writer is left: it would lose its draft."""
    for draft in list(folder.glob(f"{DRAFT_PREFIX}*")) if folder.is_dir() else ():
        _remove(draft)


def _put_folder(draft: Path, path: Path, old: Path) -> None:
    """No system call puts a folder in the place of another that holds files: the old one is moved away before."""
    for left in reversed(range(_TRIES)):
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
        try:
            draft.rename(path)
            return
        except OSError:  # another writer was faster
            if not left:
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)
