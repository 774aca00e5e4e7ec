"""Use cases of container images: which images a job may name, and which nodes have them ready.

A job's node downloads the job's image and starts it as code. Therefore an administrator decides which images a job may
name: those that match ``EDT_IMAGES``, and those in the table. When an administrator submits a job with an image, the
image enters the table, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.errors import ImageInvalid, NoSuchImage, SubmissionInvalid
from edt_scheduler.model.images import canonical, is_name, matches
from edt_scheduler.platform import Platform
from edt_scheduler.store import images as store
from edt_scheduler.store import nodes, outbox
from edt_scheduler.store.database import retried
from edt_scheduler.views import ImageOnNode, ImageView, UserView, view_of

PULL_AGAIN_SECONDS = 600.0
"""How long after a failed pull the node is asked again."""
_AT_ONCE = 100
"""Number of pulls that one transaction asks for."""
_ERROR_CHARACTERS = 500


def check_image(platform: Platform, image: str | None, owner: UserView) -> None:
    """Check that this user may name this image. ``image`` None: the job names no image.

    Raises:
        SubmissionInvalid: The image is not allowed.
    """
    if image is None or owner.is_admin or matches(image, platform.settings.images):
        return
    with platform.database.snapshot() as tx:
        if store.find(tx, canonical(image)) is None:
            raise SubmissionInvalid(
                "--msd-image-name",
                f"{image!r} is not among the images that are allowed here (`edt images` lists them); "
                f"an admin allows it by `edt images allow {image}`",
            )


def note_use(tx: Connection, image: str | None, owner: UserView, now: float) -> None:
    """Allow an image that an admin has used to all users from now on."""
    if image is not None and owner.is_admin and store.find(tx, canonical(image)) is None:
        store.allow(tx, canonical(image), owner.id, now, everywhere=False)


def images(platform: Platform, *, limit: int, after: int = 0) -> list[ImageView]:
    """At most ``limit`` images of the table, oldest first, with a number above ``after``."""
    with platform.database.snapshot() as tx:
        rows = store.page(tx, limit, after)
        there = defaultdict(list)
        for pull in store.pulls_of(tx, [row.name for row in rows]):
            there[pull.image].append(view_of(ImageOnNode, pull._mapping))
    return [_view(row, there[row.name]) for row in rows]


def _view(row: Row[Any], there: Sequence[ImageOnNode] = ()) -> ImageView:
    return ImageView(row.id, row.name, row.allowed_by_name, row.allowed_at, row.everywhere, tuple(there))


@retried(if_done=True)
def allow_image(platform: Platform, name: str, *, by: UserView, everywhere: bool) -> ImageView:
    """Let every user name an image.

    Args:
        platform: The open platform.
        name: The image's name.
        by: The admin who allows it.
        everywhere: Whether nodes that start containers get the image ready before a job needs it.

    Raises:
        ImageInvalid: The text is not the name of an image.
    """
    if not is_name(name):
        raise ImageInvalid("name", f"{name[:64]!r}: it takes REGISTRY/NAME:TAG or NAME@DIGEST")
    with platform.database.transaction() as tx:
        store.allow(tx, canonical(name), by.id, platform.clock(), everywhere=everywhere)
        row = store.find(tx, canonical(name))
        assert row is not None
    return _view(row)


@retried(if_done=True)
def forbid_image(platform: Platform, name: str) -> None:
    """Let only admins name this image from now on. Jobs that have it continue, and later attempts start with it again.

    Raises:
        NoSuchImage: The image was not allowed.
    """
    with platform.database.transaction() as tx:
        if not store.forbid(tx, canonical(name)):
            raise NoSuchImage(name)


def ask_for_pulls(platform: Platform) -> int:
    """Ask the nodes that start containers for the images that every such node should have ready.

    A node answers when it has the image or cannot get it. A node that could not get it is asked again after
    PULL_AGAIN_SECONDS.

    Returns:
        The number of pulls that were asked for.
    """
    with platform.database.snapshot() as tx:
        before = platform.clock() - PULL_AGAIN_SECONDS
        if not store.wanted(tx, before, 1):
            return 0
    with platform.database.transaction() as tx:
        now = platform.clock()
        wanted = store.wanted(tx, now - PULL_AGAIN_SECONDS, _AT_ONCE)
        for row in wanted:
            store.ask(tx, row.node_id, row.image, now)
        outbox.put_nodes(tx, {row.node_id for row in wanted}, now)
    platform.notifier.notify()
    return len(wanted)


@retried(if_done=True)
def record_pull(platform: Platform, node: str, image: str, error: str) -> None:
    """Note that a node has an image that it was asked for, or, if ``error`` is not empty, why it cannot get the image.

    Raises:
        NoSuchNode: No node has this name.
    """
    with platform.database.transaction() as tx:
        row = nodes.get(tx, node)
        if store.answer(tx, row.id, canonical(image), error[:_ERROR_CHARACTERS], platform.clock()):
            nodes.touch(tx, row.id)
