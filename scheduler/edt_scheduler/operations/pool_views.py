"""Pools as the use cases answer them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AskedNodeView:
    """A node that a pool's cluster manager was asked for and that is not gone. Times are seconds since the epoch."""

    node: str
    exec_id: str | None
    """The only job that may use it; None: any job."""
    state: str
    """``asked``: the cluster manager was not heard of yet; else an ``edt_contract.pools.PoolState``."""
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
    """When its agent registered; None: it is not there."""
    give_up_at: float | None
    """Since when it is not wanted; None: it is."""
    give_up_why: str | None


@dataclass(frozen=True)
class PoolView:
    """One pool. Times are seconds since the epoch."""

    name: str
    kind: str
    slots: int
    max_nodes: int
    max_set: bool
    """Whether an administrator has set it, and not the provisioner. So of the next two."""
    min_nodes: int
    min_set: bool
    patience_seconds: float
    patience_set: bool
    idle_seconds: float
    per_job: bool
    containers: bool
    device: str
    model: str
    note: str
    trouble: str | None
    """Why the cluster manager does not answer; None: it does."""
    registered_at: float
    seen_at: float
    """When the provisioner was last heard from."""
    silent_seconds: float
    """How long ago that is."""
    there: int
    """Nodes that have registered and are not gone, those that are leaving included."""
    asked: int
    """Nodes that are wanted and not there."""
    nodes: tuple[AskedNodeView, ...]
    """Every node that it was asked for and that is not gone, oldest first."""
