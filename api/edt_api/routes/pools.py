"""Pools: what their provisioners tell, what people see, and what admins set: ``/api/v1/pools``.

A provisioner may repeat each of its requests. They are served by the threads of agents' requests (concurrency.py).
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Response

from edt_api import concurrency
from edt_api.dependencies import AdminViewer, ThePlatform, for_admins, for_joiners, for_users
from edt_api.errors import RequestInvalid
from edt_api.schemas import pools
from edt_contract.pools import NodeState, PoolOffer
from edt_scheduler.operations import pools as operations
from edt_scheduler.operations.pool_views import AskedNodeView, PoolView

router = APIRouter(prefix="/api/v1/pools")

_MOST_LISTED = 100


@router.get("", dependencies=[for_users])
def listing(platform: ThePlatform) -> pools.Pools:
    """Return all pools, with the nodes that their cluster managers were asked for and that are not there.

    Every user sees the ids of all jobs that wait for nodes, as in the list of nodes.
    """
    found = operations.pools(platform)
    return pools.Pools(at=platform.clock(), pools=[_pool(each) for each in found])


@router.patch("/{name}")
def change(platform: ThePlatform, viewer: AdminViewer, name: str, wanted: pools.PoolSettings) -> pools.PoolChanged:
    """Set the most or fewest nodes of a pool, or its patience. What is left out stays as it is.

    What is set here is not changed by its provisioner any more.
    """
    given = wanted.model_dump(exclude_none=True)
    if not given:
        raise RequestInvalid("the body: got nothing to change; it takes max_nodes, min_nodes and patience_seconds")
    view = operations.put(platform, name, **given)
    message = (
        f"{view.name} has {min(view.min_nodes, view.max_nodes)} to {view.max_nodes} nodes, each given up if it has not "
        f"come within {view.patience_seconds:g} s"
    )
    return pools.PoolChanged(pool=pools.PoolInfo.model_validate(view), message=message)


@router.delete("/{name}", status_code=204, response_class=Response, dependencies=[for_admins])
def remove(platform: ThePlatform, name: str) -> None:
    """Remove a pool. The status is 409 while its provisioner or one of its nodes is heard from."""
    operations.remove(platform, name)


@router.put("/{name}", dependencies=[for_joiners])
async def register(platform: ThePlatform, name: str, offer: pools.PoolOfferIn) -> pools.PoolInfo:
    """Register a pool, or replace what is known of it but for what an admin has set."""
    found = await concurrency.agents.run(operations.register, platform, name, PoolOffer(**offer.model_dump()))
    return pools.PoolInfo.model_validate(found)


@router.post("/{name}/sync", dependencies=[for_joiners])
async def sync(platform: ThePlatform, name: str, said: pools.SyncIn) -> pools.Synced:
    """Take all that the cluster manager says of the pool's nodes, and return all nodes that are wanted or not gone."""
    states = None if said.nodes is None else [NodeState(**each.model_dump()) for each in said.nodes]
    taken = partial(operations.sync, platform, name, states, said.trouble)
    wanted = await concurrency.agents.run(taken)
    return pools.Synced(requests=[pools.RequestedNode.model_validate(each) for each in wanted])


def _pool(view: PoolView) -> pools.Pool:
    waiting = [each for each in view.nodes if each.granted_at is None or each.give_up_at is not None]
    listed = [_asked(each) for each in waiting[:_MOST_LISTED]]
    return pools.Pool(
        **pools.PoolInfo.model_validate(view).model_dump(), waiting=listed, more=len(waiting) - len(listed)
    )


def _asked(view: AskedNodeView) -> pools.AskedNode:
    return pools.AskedNode.model_validate(vars(view) | {"job": view.exec_id})
