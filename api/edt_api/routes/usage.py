"""How long the jobs of each user held slots, by day: ``/api/v1/usage``."""

from __future__ import annotations

from fastapi import APIRouter

from edt_api.dependencies import ThePlatform, Viewer, for_users
from edt_api.http import Cursor, Limit, cursor_of, number_of
from edt_api.schemas import cluster
from edt_scheduler.operations import history

router = APIRouter(prefix="/api/v1/usage")

_DAY_SECONDS = 86_400
_USERS = 1 << 32
"""A cursor is one number: days since 1970 times this, plus the number of a user."""


@router.get("/slot-hours", dependencies=[for_users])
def slot_hours(
    platform: ThePlatform, viewer: Viewer, limit: Limit = 100, cursor: Cursor = None
) -> cluster.SlotTimePage:
    """List for how many hours the jobs of each user held slots on each day, newest day first.

    Today is counted up to now. An admin sees all users. Other users see only themselves. Deleted jobs count, too.
    """
    number = number_of("slot-hours", cursor)
    before = (number // _USERS * _DAY_SECONDS, number % _USERS) if number is not None else None
    page = history.slot_time(platform, viewer=viewer, before=before, limit=limit)
    after = page.before[0] // _DAY_SECONDS * _USERS + page.before[1] if page.before is not None else None
    return cluster.SlotTimePage(
        items=[
            cluster.SlotTime(day=each.day, user=each.user, slot_hours=each.slot_seconds / 3600) for each in page.items
        ],
        next=cursor_of("slot-hours", after),
    )
