"""What WMLA's clients ask of the service itself: ``conf``, ``status``, ``resplans`` and ``frameworks``.

``conf`` and the plans are fixed. They are read without the database, because the command line asks for ``conf`` before
each of its commands. There is one resource plan until there are queues: the whole cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api.dependencies import ThePlatform, for_users
from edt_api.errors import NoSuchObject, OnlyPlan
from edt_api.schemas import wmla
from edt_api.to_wmla import CONSUMER, PLAN
from edt_api.version import version
from edt_scheduler.operations import fleet
from edt_scheduler.operations import frameworks as catalogue
from edt_scheduler.views import NodeView

router = APIRouter(prefix="/platform/rest/deeplearning/v1", dependencies=[for_users])

_ROOT = "root"


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
async def tree() -> wmla.PlanNode:
    """Return the tree of resource plans: a root, and below it the one plan."""
    plan = wmla.PlanNode(id=PLAN, pid=_ROOT, childTreeDto=[])
    return wmla.PlanNode(id=_ROOT, pid="", childTreeDto=[plan])


@router.get("/resplans/resplan/{plan}")
def plan(platform: ThePlatform, plan: str) -> wmla.Plan:
    """Return a resource plan."""
    _must_exist(plan)
    slots, used = _slots(fleet.nodes(platform))
    return wmla.Plan(
        id=PLAN,
        pid=_ROOT,
        name=PLAN,
        path=CONSUMER,
        slots=slots,
        used_slots=used,
        description="the whole cluster: all jobs share its slots fairly",
    )


@router.delete("/resplans/resplan/{plan}", status_code=204, response_class=Response)
async def delete_plan(plan: str) -> None:
    """Refuse to delete the one plan."""
    _must_exist(plan)
    raise OnlyPlan(f"the plan {PLAN!r} cannot be deleted: it is the only one, and all jobs belong to it")


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


def _must_exist(plan: str) -> None:
    if plan != PLAN:
        raise NoSuchObject(f"there is no resource plan {plan[:64]!r}: the only one is {PLAN!r}")


def _slots(nodes: Sequence[NodeView]) -> tuple[int, int]:
    """Return how many slots these nodes have, and how many of them jobs hold."""
    slots = [slot for node in nodes for slot in node.slots]
    return len(slots), sum(slot.exec_id is not None for slot in slots)
