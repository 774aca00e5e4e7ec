"""What a node's agent says and asks: register, assignments, reports. Room: api.

Everything may be asked again. ``assignments`` answers at once, or, given ``after`` and ``wait``, once its version
is another one; while it waits it holds no thread and no database session. All of it is done by threads that do
nothing else (threads.py), so a node is heard however much people ask.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import TypeAdapter, ValidationError

from edt_api import schemas, threads
from edt_api.closing import Closing
from edt_api.context import TheClosing, TheHouse, for_joiners, for_the_node
from edt_api.errors import RequestInvalid, TooLarge
from edt_runner.contract import ContractError, Report, node_queue
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.report_bodies import BATCH_BYTES, BATCH_REPORTS
from edt_scheduler import operations
from edt_scheduler.house import House
from edt_scheduler.nodes import SlotSpec
from edt_scheduler.views import NodeAssignments, SlotUse

router = APIRouter(prefix="/api/v1/nodes")

LONGEST_WAIT_SECONDS = 10.0
"""A poll that is held is no heartbeat, and a lease is 30 s."""
LOOK_SECONDS = 0.1
_REPORTS = TypeAdapter(list[schemas.ReportIn])


@router.post("", status_code=201, dependencies=[for_joiners])
async def register(house: TheHouse, offer: schemas.NodeOffer) -> schemas.Registered:
    """A node's agent has started. Its new token shuts out an older agent of the same name."""
    registered = partial(
        operations.register_node,
        house,
        name=offer.name,
        host=offer.host,
        cores=offer.cores,
        boot_id=offer.boot_id,
        incarnation=offer.incarnation,
        slots=[SlotSpec(slot.slot, slot.device, slot.label) for slot in offer.slots],
        launcher=offer.launcher,
        alone=offer.alone,
    )
    registration = await threads.agents.run(registered)
    return schemas.Registered(
        node=registration.node.name,
        token=registration.token,
        queue=node_queue(registration.node.name),
        broker_url=house.settings.nodes_broker,
    )


@router.get("/{name}/assignments", dependencies=[for_the_node])
async def assignments(
    house: TheHouse,
    closing: TheClosing,
    name: str,
    after: int | None = None,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
    woken_by: str = "timer",
) -> schemas.Assignments:
    """What the node should be running now. Being asked is its heartbeat."""
    if after is not None and wait > 0:
        await _another_version(house, closing, name, after, min(wait, LONGEST_WAIT_SECONDS))
    now = await threads.agents.run(_fetch, house, name, woken_by)
    listed = [assignment.to_json_object() for assignment in now.assignments]
    listed += [{"letter": {"job": job, "fence": fence}} for job, fence in now.locked]  # an agent leaves these alone
    return schemas.Assignments(version=now.version, assignments=listed, images=list(now.images))


def _fetch(house: House, name: str, woken_by: str) -> NodeAssignments:
    return operations.assignments(house, name, woken_by=woken_by)


async def _another_version(house: House, closing: Closing, name: str, after: int, wait: float) -> None:
    """Returns when the version is no longer ``after``, when the time is over, or when the server is to go."""
    until = asyncio.get_running_loop().time() + wait
    while await threads.agents.run(operations.assignments_version, house, name) == after:
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or closing.asked:
            return
        await asyncio.sleep(min(LOOK_SECONDS, left))


@router.post("/{name}/usage", status_code=204, dependencies=[for_the_node])
async def usage(house: TheHouse, name: str, told: schemas.UsageIn) -> None:
    """Take a sample of how busy the node's slots are, as of now."""
    sampled = [SlotUse(**sample.model_dump()) for sample in told.slots]
    await threads.agents.run(operations.record_usage, house, name, sampled)


@router.post("/{name}/images", status_code=204, dependencies=[for_the_node])
async def pulled(house: TheHouse, name: str, told: schemas.PulledIn) -> None:
    """The node has an image that it was asked for, or cannot get it."""
    await threads.agents.run(operations.record_pull, house, name, told.image, told.error)


@router.post("/{name}/reports", dependencies=[for_the_node])
async def reports(request: Request, house: TheHouse, name: str) -> schemas.Acked:
    """Take reports, each number of an attempt once; the answer says how far each is taken."""
    told = await threads.agents.run(_reports, await _body(request))
    acked = await threads.agents.run(operations.record_reports, house, name, told)
    crash_point(CrashPoint.API_REPORTED)
    return schemas.Acked(acked=acked)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BATCH_BYTES:
            raise TooLarge(f"reports: more than {BATCH_BYTES} bytes at once; send fewer")
    return bytes(body)


def _reports(body: bytes) -> list[Report]:
    try:
        told = _REPORTS.validate_json(body)
        if len(told) > BATCH_REPORTS:
            raise TooLarge(f"reports: {len(told)} at once; send at most {BATCH_REPORTS}")
        return [Report.from_message(report.model_dump()) for report in told]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise RequestInvalid(f"reports {place}: {first['msg']}") from None
    except ContractError as error:
        raise RequestInvalid(f"reports: {error}") from None
