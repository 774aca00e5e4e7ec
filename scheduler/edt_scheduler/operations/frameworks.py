"""Use cases of the framework catalogue: its built-in entries, and those that administrators add.

A job keeps a copy of what its framework says, so a later change or removal does not change the job. Added entries are
read from the database each time: a change is true at once for all processes of the API.
"""

from __future__ import annotations

from collections.abc import Mapping

from edt_scheduler.errors import FrameworkInvalid, NoSuchFramework
from edt_scheduler.model import catalogue
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.operations.images import note_use
from edt_scheduler.platform import Platform
from edt_scheduler.store import frameworks as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import FrameworkView, UserView

MOST_ADDED = 200
"""All entries of the catalogue are read and shown at once."""


def find(platform: Platform, name: str) -> Framework | None:
    """The entry of this name; None: there is none."""
    built_in = catalogue.built_in().get(name)
    if built_in is not None:
        return built_in
    with platform.database.snapshot() as tx:
        added = store.find(tx, name)
    return added.entry if added is not None else None


def frameworks(platform: Platform) -> list[FrameworkView]:
    """The whole catalogue: the built-in entries, then the added ones by name."""
    with platform.database.snapshot() as tx:
        added = store.every(tx)
    return [*(FrameworkView(entry) for entry in catalogue.built_in().values()), *added]


@retried(if_done=True)
def add_framework(platform: Platform, entry: Mapping[str, object], *, by: UserView) -> FrameworkView:
    """Add an entry to the catalogue, or replace the added entry of this name.

    If the entry has an image, every user may name the image from now on, as when an admin submits a job with it.

    Args:
        platform: The open platform.
        entry: The keys and values of the entry (``model.catalogue``).
        by: The admin who adds it.

    Raises:
        FrameworkInvalid: The entry is not accepted, its name is a built-in entry's, or there are too many entries.
    """
    framework = catalogue.read(entry)
    if framework.name in catalogue.built_in():
        raise FrameworkInvalid("name", f"{framework.name} is built in and stays as it is; it takes another name")
    now = platform.clock()
    with platform.database.transaction() as tx:
        if store.find(tx, framework.name) is None and store.count(tx) >= MOST_ADDED:
            raise FrameworkInvalid("name", f"there are {MOST_ADDED} added frameworks already; remove one first")
        store.put_entry(tx, framework, by.name, now)
        note_use(tx, framework.image or None, by, now)
    return FrameworkView(framework, by.name, now)


@retried(if_done=True)
def remove_framework(platform: Platform, name: str) -> None:
    """Remove an added entry. Jobs that name it continue, and later attempts of them start as before.

    Raises:
        FrameworkInvalid: The entry is a built-in one.
        NoSuchFramework: There is no entry of this name.
    """
    if name in catalogue.built_in():
        raise FrameworkInvalid("name", f"{name} is built in and cannot be removed")
    with platform.database.transaction() as tx:
        if not store.remove(tx, name):
            raise NoSuchFramework(name)
