"""Groups of engines over torch.distributed: reductions and state transfer, for both frameworks.

Several process groups can exist at the same time: the old group trains while the next one is built. torch's global
default group is never used. Reduction buffers are in host memory, and gloo sends them. With ``reduction="exact"`` the
order of every addition is the order of ``splits``, on any device. With ``reduction="fast"`` it is gloo's. An
implementation over NCCL would be a second plane and a second group in this package; ``engine.main`` and ``driver``
choose the plane.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as _distributed
import torch.distributed.distributed_c10d as _c10d

from edt_runner import environment
from edt_runner.adapter import Adapter, Reduced, State
from edt_runner.comm import connections, state_transfer
from edt_runner.comm.buckets import Bucket
from edt_runner.comm.connections import OPERATION_TIMEOUT, Watchdog
from edt_runner.comm.exchange import FastExchange, TreeExchange
from edt_runner.comm.reduction import Reduction
from edt_runner.comm.state_transfer import post
from edt_runner.comm.tree_reduction import Memory, PartialSums
from edt_runner.errors import PeerLost
from edt_runner.splits import ReductionPlan

dist: Any = _distributed  # raw process groups have no type stubs
c10d: Any = _c10d

_BUILD_SECONDS = 10.0
_TAG_REDUCED = 3
"""Tag of a group's operations beside those of ``exchange`` and ``state_transfer``."""


@dataclass(frozen=True)
class _Endpoint:
    """The sockets with which a plane listens between two calls of ``renew``."""

    device: Any
    """gloo's device, through which the processes of a group connect."""
    addresses: tuple[str, ...]
    faster: Any
    """gloo's device of the faster network; None: there is none."""
    shut: threading.Event
    """Set when the connections of all groups of this endpoint have been shut."""


class GlooPlane:
    """The data plane. It builds groups over the network interface that has the address ``host``.

    Args:
        host: this node's address in the job.
        dtype: dtype of locals and sums: float32, or float64 if the model has float64 parameters.
        interface: name of the network interface; None: gloo finds it from ``host``.
        faster: name of the interface of a faster network; None: there is none. Each group begins over the ordinary one.
            In the background it is connected over the faster one, too, and its reductions change over when all
            processes have that (``GlooGroup.change_over``). So nothing ever waits for the faster network.

    Raises:
        RuntimeError: gloo finds no such interface.
    """

    def __init__(self, host: str, dtype: torch.dtype, interface: str | None = None, faster: str | None = None) -> None:
        self._host, self._interface, self._faster, self._dtype = host, interface, faster, dtype
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
        return _Endpoint(device, addresses, faster, threading.Event())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses (``host:port``) at which other processes connect to this process, until ``renew``."""
        return self._endpoint.addresses

    def solo(self) -> GlooGroup:
        """Return a group of one process, which needs no network."""
        return GlooGroup(None, 0, 1, self._dtype, self._endpoint.shut)

    def build(self, store: str, key: str, rank: int, size: int) -> GlooGroup:
        """Build a group with other processes. All of them call this at about the same time.

        Args:
            store: ``host:port`` of the TCPStore through which the processes find each other.
            key: name of the group in the store; each name is used only once.
            rank: rank of this process in the group.
            size: number of processes in the group.

        Raises:
            PeerLost: the other processes did not connect within 10 seconds (or EDT_HANG_SECONDS, if that is less), or a
                connection broke.
        """
        endpoint = self._endpoint  # the plane may be renewed meanwhile; the group belongs to the old endpoint
        try:
            group = _connected(endpoint.device, store, key, rank, size)
        except RuntimeError as error:
            raise PeerLost(f"group {key} was not built: {error}") from error
        found = GlooGroup(group, rank, size, self._dtype, endpoint.shut)
        if endpoint.faster is not None:
            found.connect_faster(lambda: _connected(endpoint.faster, store, f"{key}/faster", rank, size))
        return found

    def shut(self, peers: Collection[str]) -> None:
        """Break every connection of every group. An operation that waits on a connection raises PeerLost within 0.1
        seconds. A thread calls this to interrupt another thread that waits.

        Args:
            peers: addresses (``host:port``) of the other processes' planes and of the store.
        """
        connections.shut(own=self._endpoint.addresses, peers=peers)
        self._endpoint.shut.set()

    def renew(self) -> None:
        """Listen at new addresses, so that later groups share nothing with the groups that were shut. A peer may still
        use an old address."""
        self._probe.clear()
        self._endpoint = self._listen()

    def close(self) -> None:
        """Stop listening for probes. Call this when no group of this plane is in use any more."""
        self._probe.close()


class GlooGroup:
    """The connected processes of one group, for example the engines of a generation.

    Only one thread uses the group. The group must be closed; until then its watchdog keeps it alive. Every operation
    raises PeerLost if a connection broke or was shut. The group cannot be used after that.

    Args:
        group: the ``ProcessGroupGloo``; None: a group of one process.
        rank: rank of this process.
        size: number of ranks.
        dtype: dtype of locals and sums.
        shut: an event that is set when the group's connections have been shut.
    """

    def __init__(self, group: Any, rank: int, size: int, dtype: torch.dtype, shut: threading.Event) -> None:
        self.rank, self.size = rank, size
        self._open_group, self._dtype = group, dtype
        self._wire, self._faster = group, None
        """What reductions go over; and what else they could go over."""
        self._shut = shut
        self._watchdog = Watchdog(shut, group)
        """Takes part in reductions."""
        self._state_watchdog = Watchdog(shut, group)
        """Waits for everything else, also during a reduction."""
        self._closed, self._changing = False, threading.Lock()
        self._memories: dict[int, Memory] = {}

    @property
    def _group(self) -> Any:
        """The process group; None: a group of one process.

        Raises:
            PeerLost: the group is closed.
        """
        if self._closed:
            raise PeerLost("the group is closed")
        return self._open_group

    # ── a faster network ──────────────────────────────────────────────────────────────────────────────────────
    def connect_faster(self, connect: Callable[[], Any]) -> None:
        """Connect this group's processes a second time, in the background.

        Args:
            connect: returns a process group with the same ranks. It raises RuntimeError if the processes cannot be
                connected; then the group goes on as it is.
        """

        def run() -> None:
            try:
                found = connect()
            except RuntimeError as error:
                print(f"edt: reductions stay on the ordinary network: {error}", flush=True)
                return
            with self._changing:
                if not self._closed:
                    self._faster = found

        threading.Thread(target=run, name="edt-faster", daemon=True).start()

    @property
    def has_faster(self) -> bool:
        """Whether this process is connected over the faster network. All processes tell each other in their notes."""
        return self._faster is not None

    def change_over(self) -> None:
        """Let all later reductions go over the faster network. All processes do this between the same two steps, when
        all of them are connected. No bit depends on the network."""
        with self._changing:
            if self._faster is None or self._wire is self._faster:
                return
            self._watchdog.close()
            self._wire, self._watchdog = self._faster, Watchdog(self._shut, self._faster)

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def begin(
        self,
        plan: ReductionPlan,
        buckets: Sequence[Bucket],
        *,
        exact: bool,
        notes: int = 1,
        previous: PartialSums | None = None,
    ) -> Reduction:
        """Begin the reduction of a step.

        Args:
            plan: plan of the step's reduction.
            buckets: the buckets of the step's flat vector, in the order in which they are reduced.
            exact: whether to sum in the order of the canonical tree; otherwise by gloo's all-reduce, whose bits depend
                on ``size``.
            notes: how many numbers each rank's notes have.
            previous: the sums of a failed try of this step; they are used again if ``exact``.

        Raises:
            PeerLost: the group is closed, or its connections have been shut.
        """
        wire, length = self._open_wire(), max(end for _, end in buckets)
        memory = self._memories.setdefault(length, Memory(length, self._dtype))
        memory.begin()
        total = None if exact else memory.result(self.size * notes, again=wire is None)
        sums = PartialSums(memory, total, previous)
        if wire is None:
            return Reduction(plan, sums, self.rank, None, self._watchdog)
        shared = (sums, buckets, self.rank, self.size, notes, self._watchdog.is_shut)
        exchange = TreeExchange(wire, plan, *shared) if exact else FastExchange(self._all_reduce, *shared)
        return Reduction(plan, sums, self.rank, exchange, self._watchdog)

    def _open_wire(self) -> Any:
        """What reductions go over; None: this process is alone.

        Raises:
            PeerLost: the group is closed.
        """
        with self._changing:
            if self._closed:
                raise PeerLost("the group is closed")
            return self._wire

    def _all_reduce(self, tensor: torch.Tensor) -> Any:
        options = c10d.AllreduceOptions()
        options.timeout = OPERATION_TIMEOUT
        return self._open_wire().allreduce([tensor], options)

    def inherit(self, old: GlooGroup) -> None:
        """Take over the memory of the group in which this process worked before. All of its operations are done."""
        self._memories, old._memories = old._memories, {}

    def send_reduced(self, reduced: Reduced, to: Sequence[int]) -> None:
        """Send the sum of the last reduction to the ranks ``to``, which have not applied it."""
        assert self._group is not None
        self._state_watchdog.wait([post(self._group.send, [reduced.contiguous()], peer, _TAG_REDUCED) for peer in to])

    def receive_reduced(self, length: int, source: int) -> Reduced:
        """Receive the tensor that rank ``source`` sends with ``send_reduced``: a new tensor of shape (length,)."""
        assert self._group is not None
        reduced = torch.empty(length, dtype=self._dtype)
        self._state_watchdog.wait([post(self._group.recv, [reduced], source, _TAG_REDUCED)])
        return reduced

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def send_state(
        self, state: State, extra: Mapping[str, Any], sources: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """Begin to send a state. Its tensors must not change until it has been sent.

        Args:
            state: the state, which is equal in all ``sources``. Its tensors may be on any device; each is sent as its
                bytes.
            extra: plain JSON that is sent with the state.
            sources: ranks that send, including this rank. The pieces of 8 MiB are dealt out to the sources in turn.
            to: ranks that receive.

        Returns:
            A function that waits until everything has been sent. It raises PeerLost if a connection broke.
        """
        group = self._group
        assert group is not None
        return state_transfer.send(group, self._state_watchdog, state, extra, self.rank, sources, to)

    def receive_state(self, adapter: Adapter, sources: Sequence[int]) -> Mapping[str, Any]:
        """Receive the state that the ranks ``sources`` send with ``send_state``, and fill ``adapter`` with it.

        Returns:
            The ``extra`` of the state.

        Raises:
            PeerLost: a connection broke. The adapter's state is incomplete then.
        """
        group = self._group
        assert group is not None
        return state_transfer.receive(group, self._state_watchdog, adapter, sources)

    def close(self) -> None:
        """Close the connections. This takes about 10 ms for each peer. Another thread may call it."""
        with self._changing:
            self._closed = True
            # this thread releases them, not the thread that waits in one of them
            group, self._open_group = (self._open_group, self._wire, self._faster), None
            self._wire = self._faster = None
            self._memories = {}
        self._watchdog.close()
        self._state_watchdog.close()
        del group


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
