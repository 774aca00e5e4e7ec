"""For how long slots were held. Room: api."""

from __future__ import annotations

from edt_api.schemas.base import Page, Shown


class SlotTime(Shown):
    """For how long the jobs of a user have held slots in one day."""

    day: int
    """Its beginning, UTC, in seconds since the epoch."""
    user: str
    slot_hours: float


class SlotTimePage(Page[SlotTime]):
    """Newest day first."""
