"""Slots over time: ``/api/v1/timeline``. Room: api."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import pictures, schemas
from edt_api.context import TheHouse, Viewer
from edt_api.errors import RequestInvalid
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/timeline")

_Time = Annotated[float, Query(allow_inf_nan=False)]


@router.get("", response_model=schemas.Timeline)
def timeline(
    house: TheHouse, viewer: Viewer, since: _Time = 0.0, until: Annotated[float | None, _Time] = None
) -> Response:
    """Who held which slot, each resize and each failure, between two times (seconds since the epoch; until now where
    there is no ``until``). Where that would be too much it begins later, as the answer's ``since`` says. Of
    others' jobs a user is told no more than which slots they hold."""
    if until is not None and until < since:
        raise RequestInvalid(f"until: got {until:g}, which is before since={since:g}")
    found = operations.timeline(house, viewer=viewer, since=since, until=math.inf if until is None else until)
    return Response(pictures.timeline(found, viewer), media_type="application/json")
