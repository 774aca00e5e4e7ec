"""Slots over time: ``/api/v1/timeline``. Room: api."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from edt_api import pictures, schemas
from edt_api.context import TheHouse, Viewer
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/timeline")


@router.get("")
def timeline(
    house: TheHouse, viewer: Viewer, since: Annotated[float, Query(allow_inf_nan=False)] = 0.0
) -> schemas.Timeline:
    """Who held which slot, and each resize, from ``since`` (seconds since the epoch) on."""
    return pictures.timeline(operations.timeline(house, viewer=viewer, since=since))
