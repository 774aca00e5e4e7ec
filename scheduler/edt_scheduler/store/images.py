"""Allowed images, and which nodes were asked to have which of them ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, or_, select, update

from edt_scheduler.store.queries import put
from edt_scheduler.store.tables import image_pulls, images, nodes, users


def find(tx: Connection, name: str) -> Row[Any] | None:
    """The image of this canonical name; None: it is not in the table."""
    return tx.execute(_named().where(images.c.name == name)).one_or_none()


def page(tx: Connection, limit: int, after: int) -> list[Row[Any]]:
    """At most ``limit`` images in the order in which they were allowed, with a number above ``after``."""
    return list(tx.execute(_named().where(images.c.id > after).order_by(images.c.id).limit(limit)))


def allow(tx: Connection, name: str, user_id: int, now: float, *, everywhere: bool) -> None:
    """Allow an image, or change whether every node should have it ready."""
    put(tx, images, {"name": name}, {"everywhere": everywhere}, allowed_by=user_id, allowed_at=now)


def forbid(tx: Connection, name: str) -> bool:
    """Take an image off the table. False: it was not in the table."""
    tx.execute(delete(image_pulls).where(image_pulls.c.image == name))
    return tx.execute(delete(images).where(images.c.name == name)).rowcount == 1


def wanted(tx: Connection, failed_before: float, limit: int) -> list[Row[Any]]:
    """At most ``limit`` pulls to ask for, as ``node_id`` and ``image``.

    A pull is asked for if the image should be everywhere, the node starts containers and is not lost, and the node was
    never asked for it or failed to get it before ``failed_before``.
    """
    query = (
        select(nodes.c.id.label("node_id"), images.c.name.label("image"))
        .select_from(
            nodes.join(images, images.c.everywhere).outerjoin(
                image_pulls, and_(image_pulls.c.node_id == nodes.c.id, image_pulls.c.image == images.c.name)
            )
        )
        .where(
            nodes.c.launcher.startswith("docker"),
            nodes.c.lost_at.is_(None),
            or_(
                image_pulls.c.node_id.is_(None),
                and_(image_pulls.c.error.is_not(None), image_pulls.c.done_at < failed_before),
            ),
        )
        .order_by(nodes.c.id, images.c.name)
        .limit(limit)
    )
    return list(tx.execute(query))


def ask(tx: Connection, node_id: int, image: str, now: float) -> None:
    """Note that a node is asked to have an image ready."""
    put(tx, image_pulls, {"node_id": node_id, "image": image}, {"asked_at": now, "done_at": None, "error": None})


def asked_of(tx: Connection, node_id: int) -> list[str]:
    """The images that a node was asked for and has not answered for."""
    wanted = image_pulls.join(images, and_(images.c.name == image_pulls.c.image, images.c.everywhere))
    unanswered = and_(image_pulls.c.node_id == node_id, image_pulls.c.done_at.is_(None))
    query = select(image_pulls.c.image).select_from(wanted).where(unanswered).order_by(image_pulls.c.image)
    return list(tx.execute(query).scalars())


def answer(tx: Connection, node_id: int, image: str, error: str, now: float) -> bool:
    """Note a node's answer: it has the image, or ``error`` says why not. False: the node was not asked."""
    row = and_(image_pulls.c.node_id == node_id, image_pulls.c.image == image)
    return tx.execute(update(image_pulls).where(row).values(done_at=now, error=error or None)).rowcount == 1


def forget(tx: Connection, node_id: int) -> None:
    """Forget what a node was asked for. Its agent has started anew, perhaps on another disk."""
    tx.execute(delete(image_pulls).where(image_pulls.c.node_id == node_id))


def pulls_of(tx: Connection, names: Sequence[str]) -> Sequence[Row[Any]]:
    """What nodes that are not lost were asked for, of these images, with each node's name as ``node``."""
    there = and_(image_pulls.c.image.in_(names), nodes.c.lost_at.is_(None))
    query = select(image_pulls, nodes.c.name.label("node")).join(nodes).where(there)
    return tx.execute(query.order_by(image_pulls.c.image, nodes.c.name)).all()


def _named() -> Any:
    """Images with the name of the user who allowed each, as ``allowed_by_name``."""
    return select(images, users.c.name.label("allowed_by_name")).join(users, users.c.id == images.c.allowed_by)
