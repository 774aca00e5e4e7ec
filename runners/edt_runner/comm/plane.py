"""The data plane of one process: it builds the groups over which engines reduce and move their state.

Several groups can exist at the same time: the old group trains while the next one is built. torch's global default
group is never used. Each group is first connected over gloo, between processors. On GPUs it is connected over NCCL,
too, in the background. So nothing ever waits for NCCL: neither a start nor the recovery from a lost process.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as _distributed

from edt_runner import environment
from edt_runner.comm import connections
from edt_runner.comm.collectives import Collectives, GlooCollectives, connect_nccl, has_nccl, set_nccl_variables
from edt_runner.comm.group import Group
from edt_runner.comm.tree_reduction import HOST
from edt_runner.errors import PeerLost

dist: Any = _distributed  # raw process groups have no type stubs

_BUILD_SECONDS = 10.0


@dataclass(frozen=True)
class _Endpoint:
    """The sockets with which a plane listens between two calls of ``renew``."""

    device: Any
    """gloo's device, through which the processes of a group connect."""
    addresses: tuple[str, ...]
    faster: Any
    """gloo's device of the faster network; None: there is none."""
    shut: threading.Event
    """Set when the connections of all groups of this endpoint have been shut, or are about to be."""
    collectives: weakref.WeakSet[Collectives]
    """Those of all groups of this endpoint. Threads use it under ``lock``."""
    lock: threading.Lock


class DataPlane:
    """Builds groups over the network interface that has the address ``host``.

    Args:
        host: this node's address in the job.
        dtype: dtype of locals and sums: float32, or float64 if the model has float64 parameters.
        interface: name of the network interface; None: gloo finds it from ``host``.
        faster: name of the interface of a faster network; None: there is none. Each group is built over the ordinary
            one. In the background it is connected over the faster one, too, and its reductions change over when all
            processes have that (``Group.change_over``). So nothing ever waits for the faster network.
        device: the device of locals and sums. GPUs are connected over NCCL in the same way, in the background.
        collectives: ``auto``: over NCCL where vectors are on GPUs. ``gloo``: nowhere. ``over-gloo``: the operations
            that NCCL would do are done by gloo, in host memory, so that they can be tested without GPUs.

    Raises:
        RuntimeError: gloo finds no such interface.
    """

    def __init__(
        self,
        host: str,
        dtype: torch.dtype,
        interface: str | None = None,
        faster: str | None = None,
        *,
        device: torch.device = HOST,
        collectives: str = "auto",
    ) -> None:
        self._host, self._interface, self._faster = host, interface, faster
        self._dtype, self._device, self._collectives = dtype, device, collectives
        self._over_nccl = collectives == "auto" and device.type == "cuda" and has_nccl()
        if self._over_nccl:
            set_nccl_variables(faster or interface)
        self.item_bytes = dtype.itemsize
        """Bytes of a number of a local."""
        self._probe = connections.ProbePort(host)
        self.probe_address = self._probe.address
        self._endpoint = self._listen()

    def _listen(self) -> _Endpoint:
        before = connections.listening()
        if self._interface:
            device = dist.ProcessGroupGloo.create_device(interface=self._interface)
        else:
            device = dist.ProcessGroupGloo.create_device(hostname=self._host)
        faster = dist.ProcessGroupGloo.create_device(interface=self._faster) if self._faster else None
        addresses = tuple(address for inode, address in connections.listening().items() if inode not in before)
        return _Endpoint(device, addresses, faster, threading.Event(), weakref.WeakSet(), threading.Lock())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses (``host:port``) at which other processes connect to this process, until ``renew``."""
        return self._endpoint.addresses

    def solo(self) -> Group:
        """Return a group of one process, which needs no network."""
        return Group(None, 0, 1, self._dtype, self._endpoint.shut, self._device)

    def build(self, store: str, key: str, rank: int, size: int, *, reduces: bool = True) -> Group:
        """Build a group with other processes. All of them call this at about the same time.

        Args:
            store: ``host:port`` of the TCPStore through which the processes find each other.
            key: name of the group in the store; each name is used only once.
            rank: rank of this process in the group.
            size: number of processes in the group.
            reduces: whether the group reduces; else it only moves state, and needs no faster network.

        Raises:
            PeerLost: the other processes did not connect within 10 seconds (or EDT_HANG_SECONDS, if that is less), or a
                connection broke.
        """
        endpoint = self._endpoint  # the plane may be renewed meanwhile; the group belongs to the old endpoint
        try:
            group = _connected(endpoint.device, store, key, rank, size)
        except RuntimeError as error:
            raise PeerLost(f"group {key} was not built: {error}") from error
        found = Group(group, rank, size, self._dtype, endpoint.shut, self._device)
        if not reduces:
            return found
        if self._collectives == "over-gloo" or self._over_nccl:
            found.connect_collectives(lambda: self._connect_collectives(endpoint, store, key, rank, size))
        elif endpoint.faster is not None:
            found.connect_faster(lambda: _connected(endpoint.faster, store, f"{key}/faster", rank, size))
        return found

    def _connect_collectives(self, endpoint: _Endpoint, store: str, key: str, rank: int, size: int) -> Collectives:
        found: Collectives
        if self._collectives == "over-gloo":
            found = GlooCollectives(_connected(endpoint.device, store, f"{key}/collectives", rank, size))
        else:
            found = connect_nccl(store, f"{key}/nccl", rank, size, self._device)
        with endpoint.lock:
            endpoint.collectives.add(found)
        if endpoint.shut.is_set():
            found.abort()
        return found

    def shut(self, peers: Collection[str]) -> None:
        """Break every connection of every group. An operation that waits on a connection raises PeerLost within 0.1
        seconds. A thread calls this to interrupt another thread that waits.

        Args:
            peers: addresses (``host:port``) of the other processes' planes and of the store.
        """
        endpoint = self._endpoint
        connections.shut(own=endpoint.addresses, peers=peers)
        endpoint.shut.set()
        with endpoint.lock:
            aborted = list(endpoint.collectives)
        for each in aborted:
            each.abort()

    def renew(self) -> None:
        """Listen at new addresses, so that later groups share nothing with the groups that were shut. A peer may still
        use an old address."""
        self._probe.clear()
        self._endpoint = self._listen()

    def close(self) -> None:
        """Stop listening for probes. Call this when no group of this plane is in use any more."""
        self._probe.close()


def _connected(device: Any, store: str, key: str, rank: int, size: int) -> Any:
    """Connect processes through a device of gloo, and return the process group.

    Raises:
        RuntimeError: the others did not connect in time.
    """
    host, _, port = store.rpartition(":")
    timeout = timedelta(seconds=min(_BUILD_SECONDS, max(1.0, environment.hang_seconds())))
    client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [device]
    options._timeout = timeout
    return dist.ProcessGroupGloo(dist.PrefixStore(key, client), rank, size, options)
