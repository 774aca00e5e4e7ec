"""Which job held which slot over time: ``/api/v1/timeline``."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import to_wire
from edt_api.dependencies import ThePlatform, Viewer
from edt_api.errors import RequestInvalid
from edt_api.schemas import cluster
from edt_scheduler.operations import history

router = APIRouter(prefix="/api/v1/timeline")

_Time = Annotated[float, Query(allow_inf_nan=False)]


@router.get("", response_model=cluster.Timeline)
def timeline(
    platform: ThePlatform, viewer: Viewer, since: _Time = 0.0, until: Annotated[float | None, _Time] = None
) -> Response:
    """Who held which slot, each resize and each failure, between two times (seconds since the epoch; until now where
    there is no ``until``). Where that would be too much it begins later, as the answer's ``since`` says. Of
    others' jobs a user sees no more than which slots they hold."""
    if until is not None and until < since:
        raise RequestInvalid(f"until: got {until:g}, which is before since={since:g}")
    found = history.timeline(platform, viewer=viewer, since=since, until=math.inf if until is None else until)
    return Response(to_wire.timeline(found, viewer), media_type="application/json")
