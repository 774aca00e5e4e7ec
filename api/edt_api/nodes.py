"""Nodes, as users see them and admins run them: ``/api/v1/nodes``. Room: api."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import pictures, schemas
from edt_api.context import AdminViewer, TheHouse, Viewer, for_admins, for_users
from edt_api.errors import RequestInvalid
from edt_api.paging import Cursor, Limit, cursor_of, cut, number_of
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/nodes")

_USUAL_SECONDS = 3600.0


@router.get("")
def listing(house: TheHouse, viewer: Viewer, limit: Limit = 100, cursor: Cursor = None) -> schemas.NodePage:
    """Nodes, their slots, who holds them, how busy they are. A cluster is shared, and an exec id is no secret."""
    after = number_of("nodes", cursor) or 0
    page, more = cut(operations.nodes(house, limit=limit + 1, after=after), limit)
    return schemas.NodePage(
        items=[pictures.node(each, viewer) for each in page],
        next=cursor_of("nodes", page[-1].number if more else None),
    )


@router.get("/{name}")
def get(house: TheHouse, viewer: Viewer, name: str) -> schemas.Node:
    return pictures.node(operations.node(house, name), viewer)


@router.get("/{name}/usage", dependencies=[for_users])
def usage(
    house: TheHouse,
    name: str,
    since: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    until: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    points: Annotated[int, Query(ge=1, le=4096)] = 300,
) -> schemas.NodeUsage:
    """How busy the node's slots were, in at most so many intervals a slot; the last hour where nothing else is said."""
    now = house.clock()
    end = now if until is None else until
    begin = end - _USUAL_SECONDS if since is None else since
    if end < begin:
        raise RequestInvalid(f"until: got {end:g}, which is before since={begin:g}")
    found = operations.usage(house, name, since=begin, until=end, points=points)
    return schemas.NodeUsage(
        now=now,
        since=begin,
        until=end,
        slots={slot: pictures.slot_usage(series) for slot, series in found.items()},
    )


@router.post("/{name}/cordon")
def cordon(house: TheHouse, viewer: AdminViewer, name: str) -> schemas.Node:
    """Start nothing new there; what runs goes on."""
    return pictures.node(operations.cordon(house, name), viewer)


@router.post("/{name}/uncordon")
def uncordon(house: TheHouse, viewer: AdminViewer, name: str) -> schemas.Node:
    """Use the node again, after a cordon or a drain."""
    return pictures.node(operations.uncordon(house, name), viewer)


@router.post("/{name}/drain")
def drain(house: TheHouse, viewer: AdminViewer, name: str) -> schemas.Node:
    """Let everything leave it at the next boundary; nothing new starts."""
    return pictures.node(operations.drain(house, name), viewer)


@router.delete("/{name}", status_code=204, dependencies=[for_admins])
def remove(house: TheHouse, name: str) -> Response:
    """Take a lost node from the list. 409 for one that is heard from, or holds slots of a job that goes on. Its history
    stays, and a node of this name may join again."""
    operations.remove_node(house, name)
    return Response(status_code=204)
