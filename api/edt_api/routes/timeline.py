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
    """Return which job held which slot, each resize and each failure between two times.

    The times are in seconds since the epoch. Without ``until`` the timeline ends now. If the answer would be too large,
    it begins later, and its ``since`` holds that later time. Users who are no admins do not get the owner and the name
    of another user's job, nor the texts of its resizes and failures.
    """
    if until is not None and until < since:
        raise RequestInvalid(f"until: got {until:g}, which is before since={since:g}")
    found = history.timeline(platform, viewer=viewer, since=since, until=math.inf if until is None else until)
    return Response(to_wire.timeline(found, viewer), media_type="application/json")
