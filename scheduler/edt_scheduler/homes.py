"""Where an attempt lives: the node that is to host its coordinator and driver. Room: scheduler.

Called inside somebody's write transaction. The home moves when its node is emptied or gone and engines of the
attempt are left elsewhere. From the word that names another home until that one tells its address the old host,
if it lives, hosts on (``attempts.host_node_id``): the engines train meanwhile, whoever listens.
"""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection

from edt_scheduler.bells import wake_attempt
from edt_scheduler.plan import home_of
from edt_scheduler.store import allocations, attempts, jobs, nodes


def keep(tx: Connection, job_id: int, fence: int, why: str, now: float) -> bool:
    """See to it that somebody carries the attempt on. False: nobody can, it is lost.

    A successor must hold an engine that has the weights: one that has yet to get them has nobody to ask. Once an
    engine has finished nothing moves any more: the trained weights are with the driver.
    """
    attempt = attempts.find(tx, job_id, fence)
    if attempt is None or attempt.ended_at is not None or attempt.kind is not None:
        return True
    living = {
        row.node_id
        for row in attempts.supervisors_of(tx, job_id, fence)
        if row.ended_at is None and row.lost_at is None
    }
    kept = [
        row
        for row in allocations.open_of(tx, job_id, fence)
        if row.release_asked_at is None and row.shrunk_by is None and row.node_id in living
    ]
    able = {row.node_id for row in kept if row.joined_at is not None}
    at_home = any(row.node_id == attempt.home_node_id for row in kept)
    if at_home or attempt.trained_at is not None or not able:
        # A home that lives without an engine, and with nobody who could follow, has the last word itself.
        return attempt.home_node_id in living
    names = {row.id: row.name for row in nodes.every(tx)}
    successor = home_of(Counter(names[row.node_id] for row in kept if row.node_id in able))
    move(tx, job_id, fence, next(number for number, name in names.items() if name == successor), why, now)
    return True


def move(tx: Connection, job_id: int, fence: int, node_id: int, why: str, now: float) -> None:
    """Name another home, and let all of the attempt know."""
    attempt = attempts.find(tx, job_id, fence)
    if attempt is None or attempt.home_node_id == node_id:
        return
    attempts.change(tx, job_id, fence, home_node_id=node_id)
    before, after = nodes.name(tx, attempt.home_node_id), nodes.name(tx, node_id)
    message = f"coordinator and driver move from {before} to {after}: {why}"
    jobs.record(tx, job_id, "home", message, {"from": before, "to": after, "why": why}, now)
    wake_attempt(tx, job_id, fence, now)


def listens(tx: Connection, job_id: int, fence: int, node_id: int, address: str, now: float) -> None:
    """A node of the attempt has told where its coordinator listens.

    Only the home's word counts, and until it has spoken that of whom it follows.
    """
    attempt = attempts.find(tx, job_id, fence)
    if attempt is None or node_id not in {attempt.home_node_id, attempt.host_node_id}:
        return
    if (attempt.coordinator, attempt.host_node_id) == (address, node_id):
        return
    attempts.change(tx, job_id, fence, coordinator=address, host_node_id=node_id)
    wake_attempt(tx, job_id, fence, now, but=node_id)
