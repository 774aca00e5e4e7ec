"""Chooses what a provisioner does: a pure comparison of what is wanted with what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edt_contract.pools import NodeRequest, NodeState, PoolState


@dataclass(frozen=True)
class Actions:
    """What to do next."""

    create: tuple[NodeRequest, ...]
    end: tuple[str, ...]


def decide(requests: Sequence[NodeRequest], found: Sequence[NodeState], told: frozenset[str] = frozenset()) -> Actions:
    """Compare.

    Args:
        requests: all that the API listed.
        found: all that the cluster manager knows.
        told: nodes of which the API has been told that they have ended, so that what is left of them may go.

    Returns:
        The nodes to ask for, and those to end: nodes that are not wanted, or that nobody has asked for.
    """
    there = {node.node for node in found}
    wanted = {request.node for request in requests if not request.end}
    create = tuple(each for each in requests if not each.end and not each.created and each.node not in there)
    # What has ended stays in the cluster manager until the API knows how it ended.
    end = tuple(
        node.node for node in found if node.node not in wanted and (node.state != PoolState.ENDED or node.node in told)
    )
    return Actions(create, end)
