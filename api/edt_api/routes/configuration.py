"""What WMLA's clients ask of the service itself: ``conf``, ``status``, ``resplans`` and ``frameworks``.

``conf`` is fixed. It is read without the database, because the command line asks for it before each of its commands.
The resource plans are the queues (queues.py): below a root there is the plan ``openedt``, the whole cluster, and below
that one plan for each queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import concurrency, to_wmla
from edt_api.dependencies import ThePlatform, Viewer, for_admins, for_users
from edt_api.errors import OnlyPlan
from edt_api.schemas import wmla
from edt_api.submissions.scheduling import PLAN
from edt_api.version import version
from edt_scheduler.operations import fleet, queues
from edt_scheduler.operations import frameworks as catalogue
from edt_scheduler.views import NodeView

_PREFIX = "/platform/rest/deeplearning/v1"

router = APIRouter(prefix=_PREFIX, dependencies=[for_users])
_admins = APIRouter(prefix=_PREFIX, dependencies=[for_admins])


@router.get("/conf")
@router.get("/conf/")
async def conf() -> dict[str, str]:
    """Return the settings that clients read. ``MSD_ENABLED`` is ``true``: jobs have records in the scheduler's list."""
    return {"MSD_ENABLED": "true", "version": version(), "product": "OpenEDT"}


@router.get("/status")
@router.get("/status/")
def status(platform: ThePlatform) -> wmla.Status:
    """Return the state of the platform: its nodes by health, and how many of its slots are held."""
    nodes = fleet.nodes(platform)
    slots, used = _slots(nodes)
    return wmla.Status(
        status="RUNNING",
        version=version(),
        nodes=dict(Counter(node.health.value for node in nodes)),
        slots=slots,
        used_slots=used,
    )


@router.get("/resplans/resplantree")
@router.get("/resplans/resplantree/")
def tree(platform: ThePlatform) -> wmla.PlanNode:
    """Return the tree of resource plans."""
    return to_wmla.plan_tree(queues.paths(platform))


@router.get("/resplans/resplan/{plan:path}")
async def plan(platform: ThePlatform, viewer: Viewer, plan: str) -> wmla.Plan:
    """Return a resource plan. It is named by its path, or by the last part of it if no other plan has the same."""
    found = await concurrency.bulk.run(partial(queues.queues, platform, viewer=viewer))
    path = to_wmla.queue_of_plan(plan, [each.path for each in found.queues])
    return to_wmla.resource_plan(found, path)


@_admins.delete("/resplans/resplan/{plan:path}", status_code=204, response_class=Response)
def delete_plan(platform: ThePlatform, plan: str) -> None:
    """Remove a queue. Its jobs belong to the queue above. The plan above all stays: all jobs belong to it."""
    path = to_wmla.queue_of_plan(plan, queues.paths(platform))
    if not path:
        raise OnlyPlan(f"the plan {PLAN!r} cannot be deleted: it is the whole cluster, and all jobs belong to it")
    queues.remove_queue(platform, path)


@router.get("/frameworks")
@router.get("/frameworks/")
def frameworks(platform: ThePlatform, backend: Annotated[str, Query(max_length=64)] = "") -> list[wmla.FrameworkDetail]:
    """List the frameworks in the form of WMLA 1.2, with ``backend`` only those of that backend."""
    return [
        wmla.FrameworkDetail(
            name=each.entry.name, home="", backend=each.entry.backend, accelerator="edt", psNum="0", commIPNetwork=""
        )
        for each in catalogue.frameworks(platform)
        if backend.lower() in {"", each.entry.backend}
    ]


@router.get("/frameworks/all")
@router.get("/frameworks/all/")
def framework_names(platform: ThePlatform) -> list[str]:
    """List the names of all frameworks."""
    return [each.entry.name for each in catalogue.frameworks(platform)]


router.routes.extend(_admins.routes)


def _slots(nodes: Sequence[NodeView]) -> tuple[int, int]:
    """Return how many slots these nodes have, and how many of them jobs hold."""
    slots = [slot for node in nodes for slot in node.slots]
    return len(slots), sum(slot.exec_id is not None for slot in slots)
