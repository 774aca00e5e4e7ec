"""What a provisioner and the API say to each other about a pool: nodes that come from another cluster manager, such as
Kubernetes or Slurm, and go again.

A provisioner registers its pool (``PoolOffer``). Then it sends, again and again, what the cluster manager says of the
pool's nodes (``NodeState``), and the API answers with all nodes that are wanted or still there (``NodeRequest``). Both
lists are whole each time, so a lost or doubled message does no harm.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from dataclasses import dataclass


class PoolState(enum.StrEnum):
    """What the cluster manager says of one node."""

    REFUSED = "refused"  # it could not be asked for; ``reason`` says why, and the provisioner tries again
    PENDING = "pending"  # asked for, and not there
    RUNNING = "running"  # its processes were started
    ENDED = "ended"  # its processes are gone, and will not come back


@dataclass(frozen=True)
class PoolOffer:
    """A pool that a provisioner registers."""

    kind: str
    """``kubernetes``, ``slurm`` or ``process``."""
    slots: int
    """Slots of each of its nodes."""
    max_nodes: int
    """The most nodes, as long as no administrator has set another number."""
    min_nodes: int = 0
    """The fewest nodes, idle ones too. 0 if nodes are asked for by job."""
    per_job: bool = True
    """Whether each node is asked for by one job and used by no other."""
    containers: bool = False
    """Whether a node starts in the image that a job asks for."""
    device: str = "cpu"
    """``cpu`` or ``gpu``."""
    model: str = ""
    """Model of the GPUs; "": they are all alike, or not GPUs."""
    patience_seconds: float = 120.0
    """Seconds after which a node that does not come is given up."""
    idle_seconds: float = 60.0
    """Seconds after which a node that no job uses leaves, unless there would be fewer than ``min_nodes``."""
    note: str = ""
    """A sentence for administrators, for example as whose user the cluster manager runs the nodes."""


@dataclass(frozen=True)
class NodeRequest:
    """One node that the platform wants, or wanted and that is not gone."""

    node: str
    """The node's name, also in the cluster manager: lower-case letters, digits and '-', at most 52 characters."""
    slots: int
    end: bool = False
    """Whether the node is not wanted any more. Nothing of a job runs there."""
    created: bool = False
    """Whether the cluster manager was seen to know it. Such a node is never created again."""
    job: str | None = None
    """The only job that may use the node; None: any."""
    user: str | None = None
    """The owner of ``job``."""
    queue: str = ""
    """The job's queue, as a path; "": the root, or no job."""
    framework: str = "pytorch"
    """A name of ``edt_contract.frameworks.FRAMEWORKS``."""
    image: str | None = None
    """The image that the job asks for; None: the provisioner's own."""
    priority: int = 1
    """The job's priority class."""
    first: bool = True
    """Whether the job needs the node to start. Otherwise it only grows by it."""
    group_size: int = 0
    """Number of nodes that are of use only together (a gang); 0: this one is of use alone."""
    idle_seconds: float = 60.0
    """Seconds after which the node's agent may leave when no job uses the node."""


@dataclass(frozen=True)
class NodeState:
    """What the cluster manager says of one node."""

    node: str
    state: str
    """A ``PoolState``."""
    reason: str = ""
    """Why it is pending, was refused or has ended, in the cluster manager's own words."""
    oom: bool = False
    """Whether it was ended because it used too much memory."""


def node_token(join_token: str, node: str) -> str:
    """The token with which only the node of this name can register. It tells nothing about the join token."""
    return hmac.new(join_token.encode(), b"node " + node.encode(), hashlib.sha256).hexdigest()
