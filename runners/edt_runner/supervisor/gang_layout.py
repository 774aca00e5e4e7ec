"""Which processes a gang has: their ranks, nodes, slots and ports. This module has no input or output.

Every node computes the same layout from the attempt spec and the ports of all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edt_contract.gang import Gang, Processes


def ports_needed(gang: Gang, node: str) -> int:
    """Number of ports that the supervisor of ``node`` reserves: one for MASTER_PORT, and one for each slot."""
    return 1 + sum(len(part.allocations) for part in gang.nodes if part.node == node)


@dataclass(frozen=True)
class Worker:
    """One worker of a gang. Its slots lie on one node."""

    number: int
    """From 0, over all nodes."""
    node: str
    host: str
    """Address of the node."""
    allocations: tuple[int, ...]
    """The worker's slots."""
    ports: tuple[int, ...]
    """A port for each slot."""

    @property
    def name(self) -> str:
        """The worker's name in the host file of MPI. It is no address: two workers may be on one machine."""
        return f"worker-{self.number}"

    def address(self, slot: int = 0) -> str:
        """``host:port`` with the port of one of its slots."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.ports[slot]}"


@dataclass(frozen=True)
class Member:
    """One process of a gang."""

    rank: int
    worker: Worker
    local_rank: int
    """Number of the process in its worker, from 0."""
    local_world: int
    """Number of processes of its worker."""
    allocations: tuple[int, ...]
    """The slots that the process holds."""
    runs_command: bool = True
    """Whether it runs the gang's command. Otherwise it is the edt-rsh server of its worker; its rank means nothing."""

    @property
    def address(self) -> str:
        """``host:port`` with the port of its first slot."""
        return self.worker.address(self.local_rank)

    @property
    def words(self) -> str:
        """What messages call it."""
        return f"rank {self.rank}" if self.runs_command else f"the edt-rsh server of {self.worker.name}"


@dataclass(frozen=True)
class Layout:
    """All processes of a gang, and where the first one waits for the others."""

    workers: tuple[Worker, ...]
    members: tuple[Member, ...]
    """The processes by rank; behind them the edt-rsh servers."""
    master_host: str
    master_port: int

    @property
    def ranks(self) -> list[Member]:
        """The processes that run the command."""
        return [member for member in self.members if member.runs_command]

    def on(self, node: str) -> list[Member]:
        """The processes of one node."""
        return [member for member in self.members if member.worker.node == node]


def lay_out(gang: Gang, ports: Sequence[Sequence[int]]) -> Layout:
    """The layout of a gang.

    Args:
        gang: the gang.
        ports: the ports of each node, in the order of ``gang.nodes``: first the one for MASTER_PORT, then one for each
            slot.

    Raises:
        ValueError: a node has too few ports, or its slots are no whole number of workers.
    """
    workers: list[Worker] = []
    for part, reserved in zip(gang.nodes, ports, strict=True):
        slots = part.allocations
        if len(reserved) != 1 + len(slots) or len(slots) % gang.devices:
            raise ValueError(f"{part.node}: {len(slots)} slots, {len(reserved)} ports, {gang.devices} slots a worker")
        for first in range(0, len(slots), gang.devices):
            own = slice(first, first + gang.devices)
            workers.append(Worker(len(workers), part.node, part.host, slots[own], tuple(reserved[1:][own])))
    members = [member for worker in workers for member in _members(worker, gang)]
    return Layout(
        tuple(workers),
        tuple(sorted(members, key=lambda member: not member.runs_command)),
        gang.nodes[0].host,
        ports[0][0],
    )


def _members(worker: Worker, gang: Gang) -> list[Member]:
    """The processes of a worker. With one process for the job, the workers other than the first have an edt-rsh server
    each."""
    count = len(worker.allocations)
    match gang.command.processes:
        case Processes.DEVICE:
            return [
                Member(worker.number * count + index, worker, index, count, (allocation,))
                for index, allocation in enumerate(worker.allocations)
            ]
        case Processes.WORKER:
            return [Member(worker.number, worker, 0, 1, worker.allocations)]
        case Processes.JOB:
            return [Member(worker.number, worker, 0, 1, worker.allocations, runs_command=worker.number == 0)]
