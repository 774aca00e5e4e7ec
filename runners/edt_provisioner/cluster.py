"""What a cluster manager must be able to do for a provisioner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from edt_contract.pools import NodeRequest, NodeState, PoolOffer


class ClusterAway(Exception):
    """The cluster manager does not answer now. What it runs goes on."""


class Cluster(Protocol):
    """One cluster manager. All methods may be repeated at any time; each may raise ClusterAway."""

    def offer(self) -> PoolOffer:
        """The pool that it can be, for the registration."""

    def nodes(self) -> Sequence[NodeState]:
        """All nodes of this pool that the cluster manager knows, those that have ended too until they are removed."""

    def create(self, requests: Sequence[NodeRequest]) -> Sequence[NodeState]:
        """Ask for nodes. A node that is there already is left as it is.

        Returns:
            The nodes that were refused, with the reasons. They are asked for again later.
        """

    def end(self, nodes: Collection[str]) -> None:
        """End nodes, whether they run, are pending or have ended, and remove what is left of them."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Start to call ``changed``, from a thread of its own, whenever something may have changed. It is a hint that
        may stay away."""

    def close(self) -> None:
        """End what ``watch`` has started. The nodes stay."""
