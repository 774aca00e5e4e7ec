"""Nodes, as users see them and as admins manage them: ``/api/v1/nodes``."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import to_wire
from edt_api.dependencies import AdminViewer, ThePlatform, Viewer, for_admins, for_users
from edt_api.errors import RequestInvalid
from edt_api.http import Cursor, Limit, paged
from edt_api.schemas import cluster
from edt_scheduler.operations import fleet

router = APIRouter(prefix="/api/v1/nodes")

_USUAL_SECONDS = 3600.0


@router.get("")
def listing(platform: ThePlatform, viewer: Viewer, limit: Limit = 100, cursor: Cursor = None) -> cluster.NodePage:
    """List the nodes with their slots, the jobs that hold the slots, and how busy the slots are.

    Every user sees the ids of all these jobs: users share the cluster, and the id of a job is no secret.
    """
    find = partial(fleet.nodes, platform)
    show = partial(to_wire.node, viewer=viewer)
    return paged(cluster.NodePage, "nodes", find, attrgetter("number"), limit, cursor, show)


@router.get("/{name}")
def get(platform: ThePlatform, viewer: Viewer, name: str) -> cluster.Node:
    return to_wire.node(fleet.node(platform, name), viewer)


@router.get("/{name}/usage", dependencies=[for_users])
def usage(
    platform: ThePlatform,
    name: str,
    since: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    until: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    points: Annotated[int, Query(ge=1, le=4096)] = 300,
) -> cluster.NodeUsage:
    """Return how busy the node's slots were, in at most ``points`` intervals for each slot.

    ``until`` is now and ``since`` is an hour before ``until`` if the request does not give them.
    """
    now = platform.clock()
    end = now if until is None else until
    begin = end - _USUAL_SECONDS if since is None else since
    if end < begin:
        raise RequestInvalid(f"until: got {end:g}, which is before since={begin:g}")
    found = fleet.usage(platform, name, since=begin, until=end, points=points)
    return cluster.NodeUsage(
        now=now,
        since=begin,
        until=end,
        slots={slot: to_wire.slot_usage(series) for slot, series in found.items()},
    )


@router.post("/{name}/cordon")
def cordon(platform: ThePlatform, viewer: AdminViewer, name: str) -> cluster.Node:
    """Start nothing new on the node. Jobs that run there continue."""
    return to_wire.node(fleet.cordon(platform, name), viewer)


@router.post("/{name}/uncordon")
def uncordon(platform: ThePlatform, viewer: AdminViewer, name: str) -> cluster.Node:
    """Use the node again, after a cordon or a drain."""
    return to_wire.node(fleet.uncordon(platform, name), viewer)


@router.post("/{name}/drain")
def drain(platform: ThePlatform, viewer: AdminViewer, name: str) -> cluster.Node:
    """Empty the node: its engines leave at their next boundary, and nothing new starts on it."""
    return to_wire.node(fleet.drain(platform, name), viewer)


@router.delete("/{name}", status_code=204, response_class=Response, dependencies=[for_admins])
def remove(platform: ThePlatform, name: str) -> None:
    """Remove a lost node from the list. Its history stays, and a node of this name may join again.

    The status is 409 if the node is not lost, or if a part of a running attempt is on it.
    """
    fleet.remove_node(platform, name)
