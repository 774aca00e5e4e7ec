"""Shapes of pools: nodes that another cluster manager gives and takes. ``edt_contract.pools`` says what they mean.

Times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edt_api.schemas.jobs import AgentInput, Output, UserInput

MOST_POOL_NODES = 100_000
MOST_POOL_SECONDS = 864_000.0


class AskedNode(Output):
    """A node that a pool's cluster manager was asked for and that is not gone."""

    node: str
    job: str | None
    """Id of the only job that may use it; None: any job."""
    state: str
    """``asked``: the cluster manager was not heard of yet; ``refused``, ``pending``, ``running``."""
    reason: str
    """Of its state, in the cluster manager's own words."""
    first: bool
    """Whether its job needs it to start. Otherwise the job only grows by it."""
    group_size: int
    """Number of nodes that are of use only together; 0: it is of use alone."""
    asked_at: float
    waits_seconds: float
    """How long it has been waited for; 0: it is there."""
    granted_at: float | None
    """When it registered; None: it is not there."""
    give_up_at: float | None
    """Since when it is not wanted any more; None: it is wanted."""
    give_up_why: str | None


class PoolInfo(Output):
    """One pool, without its nodes."""

    name: str
    kind: str
    """``kubernetes``, ``slurm`` or ``process``."""
    slots: int
    """Slots of each of its nodes."""
    max_nodes: int
    max_set: bool
    """Whether an admin has set it, and not the provisioner. So of the next two."""
    min_nodes: int
    min_set: bool
    patience_seconds: float
    """After so many seconds a node that does not come is given up."""
    patience_set: bool
    idle_seconds: float
    """After so many seconds a node that no job uses leaves."""
    per_job: bool
    """Whether each node is asked for by one job and used by no other."""
    containers: bool
    """Whether a node starts in the image that a job asks for."""
    device: str
    model: str
    """Model of its GPUs; empty: they are all alike, or not GPUs."""
    note: str
    trouble: str | None
    """Why the cluster manager does not answer; None: it does."""
    registered_at: float
    seen_at: float
    """When its provisioner was last heard from."""
    silent_seconds: float
    """Seconds between that and this answer."""
    there: int
    """Nodes that have registered and are not gone."""
    asked: int
    """Nodes that are wanted and not there."""


class Pool(PoolInfo):
    """One pool, with the nodes that are waited for."""

    waiting: list[AskedNode]
    """The nodes that are not there, and those that are not wanted any more and not gone: at most 100, oldest first."""
    more: int
    """How many of these are not listed."""


class Pools(Output):
    """All pools, by name."""

    at: float
    pools: list[Pool]


class PoolSettings(UserInput):
    """What an admin sets of a pool. What is left out stays as it is."""

    max_nodes: Annotated[int, Field(ge=0, le=MOST_POOL_NODES)] | None = None
    min_nodes: Annotated[int, Field(ge=0, le=MOST_POOL_NODES)] | None = None
    patience_seconds: Annotated[float, Field(gt=0, le=MOST_POOL_SECONDS, allow_inf_nan=False)] | None = None


class PoolChanged(Output):
    """A pool after a change."""

    pool: PoolInfo
    message: str
    """What holds now, in a sentence."""


class PoolOfferIn(AgentInput):
    """A pool that a provisioner registers."""

    kind: Annotated[str, Field(min_length=1, max_length=64)]
    slots: int
    max_nodes: int
    min_nodes: int = 0
    per_job: bool = True
    containers: bool = False
    device: Annotated[str, Field(max_length=64)] = "cpu"
    model: Annotated[str, Field(max_length=200)] = ""
    patience_seconds: Annotated[float, Field(allow_inf_nan=False)] = 120.0
    idle_seconds: Annotated[float, Field(allow_inf_nan=False)] = 60.0
    note: str = ""


class NodeStateIn(AgentInput):
    """What a cluster manager says of one node."""

    node: Annotated[str, Field(min_length=1, max_length=253)]
    state: Annotated[str, Field(max_length=64)]
    reason: str = ""
    oom: bool = False


class SyncIn(AgentInput):
    """All that a cluster manager says of a pool's nodes."""

    trouble: str | None = None
    """Why the cluster manager does not answer; None: it does."""
    nodes: Annotated[list[NodeStateIn], Field(max_length=MOST_POOL_NODES)] | None = None
    """All nodes that it knows; None: it does not answer."""


class RequestedNode(Output):
    """One node that is wanted, or was wanted and is not gone."""

    node: str
    slots: int
    end: bool
    created: bool
    job: str | None
    user: str | None
    queue: str
    framework: str
    image: str | None
    priority: int
    first: bool
    group_size: int
    idle_seconds: float


class Synced(Output):
    """Answer to a sync: the whole list."""

    requests: list[RequestedNode]
