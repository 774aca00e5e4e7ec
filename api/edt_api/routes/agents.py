"""Requests of a node's agent: register, assignments, reports, usage, images and leaving.

An agent may repeat every request. ``assignments`` answers at once. With ``after`` and ``wait`` it answers when the
version of the assignments is no longer ``after``, or when the time is over. A waiting request holds no thread and no
database session. A separate pool of threads serves these requests (concurrency.py), so nodes get answers however many
requests people send.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter, ValidationError

from edt_api import concurrency
from edt_api.dependencies import Stopping, ThePlatform, for_joining_nodes, for_the_node
from edt_api.errors import RequestInvalid, TooLarge
from edt_api.schemas import cluster
from edt_api.submissions.uploads import read_whole
from edt_contract.broker import node_queue
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.encoding import ContractError
from edt_contract.reports import BATCH_BYTES, BATCH_REPORTS, Report
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.operations import agents, fleet, images
from edt_scheduler.platform import Platform
from edt_scheduler.views import ForeignProcess, SlotUse

router = APIRouter(prefix="/api/v1/nodes")

LONGEST_WAIT_SECONDS = 10.0
"""A waiting poll is no heartbeat, and a lease lasts 30 s."""
LOOK_SECONDS = 0.1
_REPORTS = TypeAdapter(list[cluster.ReportIn])


@router.post("", status_code=201, dependencies=[for_joining_nodes])
async def register(platform: ThePlatform, offer: cluster.NodeOffer) -> cluster.Registered:
    """Register a node whose agent has started.

    The answer holds a new token. An older agent of a node of this name is refused from then on. The status is 409 if a
    pool's cluster manager was asked for the node and it is not wanted any more; its agent should end then.
    """
    registered = partial(
        fleet.register_node,
        platform,
        **offer.model_dump(exclude={"slots"}),
        slots=[SlotSpec(**slot.model_dump()) for slot in offer.slots],
    )
    registration = await concurrency.agents.run(registered)
    return cluster.Registered(
        node=registration.node.name,
        token=registration.token,
        queue=node_queue(registration.node.name),
        broker_url=platform.settings.nodes_broker,
    )


@router.get("/{name}/assignments", dependencies=[for_the_node])
async def assignments(
    platform: ThePlatform,
    stopping: Stopping,
    name: str,
    after: int | None = None,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
    woken_by: str = "timer",
) -> cluster.Assignments:
    """Return what the node should be running now. The request also counts as the node's heartbeat."""
    if after is not None and wait > 0:
        await _another_version(platform, stopping, name, after, min(wait, LONGEST_WAIT_SECONDS))
    now = await concurrency.agents.run(partial(agents.assignments, platform, name, woken_by=woken_by))
    listed = [assignment.to_json_object() for assignment in now.assignments]
    listed += [{"spec": {"job": job, "fence": fence}} for job, fence in now.locked]  # an agent leaves them unchanged
    return cluster.Assignments(version=now.version, assignments=listed, images=list(now.images))


async def _another_version(platform: Platform, stopping: threading.Event, name: str, after: int, wait: float) -> None:
    """Return when the version is no longer ``after``, when the time is over, or when the server is asked to stop."""
    until = asyncio.get_running_loop().time() + wait
    while await concurrency.agents.run(agents.assignments_version, platform, name) == after:
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or stopping.is_set():
            return
        await asyncio.sleep(min(LOOK_SECONDS, left))


@router.post("/{name}/usage", status_code=204, response_class=Response, dependencies=[for_the_node])
async def usage(platform: ThePlatform, name: str, sample: cluster.UsageIn) -> None:
    """Store a sample of how busy the node's slots are. Its time is the time of its arrival."""
    sampled = [_use(slot) for slot in sample.slots]
    await concurrency.agents.run(agents.record_usage, platform, name, sampled)


@router.post("/{name}/leaving", dependencies=[for_the_node])
async def leaving(platform: ThePlatform, name: str, said: cluster.LeavingIn) -> cluster.Leaving:
    """Tell that a node of a pool wants to leave, or that nothing of a job is left on it.

    The node is emptied from then on. With ``if_idle`` it is only if nothing of a job is on it and its pool keeps its
    least number of nodes.
    """
    leave = partial(agents.leaving, platform, name, said.why, if_idle=said.if_idle, gone=said.gone)
    return cluster.Leaving(leave=await concurrency.agents.run(leave))


def _use(sample: cluster.SlotSample) -> SlotUse:
    found = tuple(ForeignProcess(each.pid, each.name) for each in sample.foreign_processes)
    return SlotUse(**sample.model_dump(exclude={"foreign_processes"}), foreign_processes=found)


@router.post("/{name}/images", status_code=204, response_class=Response, dependencies=[for_the_node])
async def pulled(platform: ThePlatform, name: str, pull: cluster.PulledIn) -> None:
    """Store whether the node has got an image that it was asked to fetch, or why it cannot get the image."""
    await concurrency.agents.run(images.record_pull, platform, name, pull.image, pull.error)


@router.post("/{name}/reports", dependencies=[for_the_node])
async def reports(request: Request, platform: ThePlatform, name: str) -> cluster.Acked:
    """Accept reports. Each report number of an attempt is accepted once.

    The answer holds the last accepted number of each attempt.
    """
    body = await read_whole(
        request.stream(), BATCH_BYTES, f"reports: more than {BATCH_BYTES} bytes at once; send fewer"
    )
    sent = await concurrency.agents.run(_reports, body)
    acked = await concurrency.agents.run(agents.record_reports, platform, name, sent)
    crash_point(CrashPoint.API_REPORTED)
    return cluster.Acked(acked=acked)


def _reports(body: bytes) -> list[Report]:
    try:
        sent = _REPORTS.validate_json(body)
        if len(sent) > BATCH_REPORTS:
            raise TooLarge(f"reports: {len(sent)} at once; send at most {BATCH_REPORTS}")
        return [Report.from_message(report.model_dump()) for report in sent]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise RequestInvalid(f"reports {place}: {first['msg']}") from None
    except ContractError as error:
        raise RequestInvalid(f"reports: {error}") from None
