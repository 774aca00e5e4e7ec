"""Groups of engines over torch.distributed: reductions and state transfer, for both frameworks.

Several process groups can exist at the same time: the old group trains while the next one is built. torch's global
default group is never used. Reduction buffers are in host memory, and gloo sends them. With ``reduction="exact"`` the
order of every addition is the order of ``schedule``, on any device. With ``reduction="fast"`` it is gloo's. An
implementation over NCCL would be a second plane and a second group in this package; ``engine.main`` and ``driver``
choose the plane.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as _distributed
import torch.distributed.distributed_c10d as _c10d

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context, environment
from edt_runner.adapter import Adapter, Local, Reduced, State
from edt_runner.comm import connections
from edt_runner.comm.connections import OPERATION_TIMEOUT, Watchdog
from edt_runner.comm.tree_reduction import Buffers, PartialSums, sum_subtree, sum_upper_tree
from edt_runner.errors import PeerLost
from edt_runner.schedule import ReductionPlan, Span

dist: Any = _distributed  # raw process groups have no type stubs
c10d: Any = _c10d

_BUILD_SECONDS = 10.0
_PIECE_BYTES = 8 << 20
_TAG_SIZE, _TAG_TEXT, _TAG_REDUCED, _TAG_SHARD, _TAG_ANNOUNCED = 1, 2, 3, 4, 5
_TAG_SPANS, _TAG_PIECES = 1 << 10, 1 << 16


@dataclass(frozen=True)
class _Endpoint:
    """The sockets with which a plane listens between two calls of ``renew``."""

    device: Any
    """gloo's device, through which the processes of a group connect."""
    addresses: tuple[str, ...]
    shut: threading.Event
    """Set when the connections of all groups of this endpoint have been shut."""


class GlooPlane:
    """The data plane. It builds groups over the network interface that has the address ``host``.

    Args:
        host: this node's address in the job.
        dtype: dtype of locals and sums: float32, or float64 if the model has float64 parameters.
        interface: name of the network interface; None: gloo finds it from ``host``.

    Raises:
        RuntimeError: gloo finds no such interface.
    """

    def __init__(self, host: str, dtype: torch.dtype, interface: str | None = None) -> None:
        self._host, self._interface, self._dtype = host, interface, dtype
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
        addresses = tuple(address for inode, address in connections.listening().items() if inode not in before)
        return _Endpoint(device, addresses, threading.Event())

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
        host, _, port = store.rpartition(":")
        timeout = timedelta(seconds=min(_BUILD_SECONDS, max(1.0, environment.hang_seconds())))
        try:
            client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
            options = dist.ProcessGroupGloo._Options()
            options._devices = [endpoint.device]
            options._timeout = timeout
            group = dist.ProcessGroupGloo(dist.PrefixStore(key, client), rank, size, options)
        except RuntimeError as error:
            raise PeerLost(f"group {key} was not built: {error}") from error
        return GlooGroup(group, rank, size, self._dtype, endpoint.shut)

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
        self._watchdog = Watchdog(shut, group)
        self._closed = False
        self._buffers: dict[int, Buffers] = {}

    @property
    def _group(self) -> Any:
        """The process group; None: a group of one process.

        Raises:
            PeerLost: the group is closed.
        """
        group = self._open_group
        if self._closed:
            raise PeerLost("the group is closed")
        return group

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def begin(self, length: int, *, exact: bool, previous: PartialSums | None = None) -> PartialSums:
        """Begin to sum a step.

        Args:
            length: how many numbers a local has.
            exact: whether to sum in the order of the canonical tree; otherwise a plain all-reduce, whose bits depend on
                ``size``.
            previous: the sums of a failed try of this step; they are used again if ``exact``.
        """
        if length not in self._buffers:
            self._buffers[length] = Buffers(length, self.size, self._dtype)
        return PartialSums(length, self._buffers[length].next_total() if not exact else None, previous)

    def sum_own(self, plan: ReductionPlan, sums: PartialSums, fill: Callable[[int, Local], None]) -> None:
        """Sum this rank's micro-batches into ``sums``.

        Args:
            plan: plan of the step's reduction.
            sums: what ``begin`` returned.
            fill: is called with the index of each own micro-batch that is not summed yet, in ascending order, and with
                a tensor of shape (length,). It fills the tensor with the micro-batch's local.
        """
        buffers = self._buffers[sums.length]
        if sums.total is not None:
            local = buffers.take()
            for index in plan.split[self.rank]:
                fill(index, local[: sums.length])
                sums.total[: sums.length].add_(local[: sums.length])
            buffers.give_back(local)
            return
        for span in plan.spans[self.rank]:
            sum_subtree(span, sums, buffers, fill)

    def reduce(self, plan: ReductionPlan, sums: PartialSums, announce: Callable[[], int]) -> tuple[Reduced, int]:
        """Sum over all ranks.

        Args:
            plan: plan of the step's reduction.
            sums: the sums of all of this rank's micro-batches. This uses them up when it returns. If it raises, those
                of an exact reduction are still complete.
            announce: returns the number that this rank announces to all other ranks. It is called as late as possible.

        Returns:
            The sum, of shape (length,), which stays valid until the next reduction of this length has returned; and the
            number that all ranks announced, or 0 if they announced different numbers.

        Raises:
            PeerLost: a connection broke or was shut.
        """
        buffers = self._buffers[sums.length]
        if sums.total is not None:
            return self._all_reduce(sums.total, sums.length, announce)
        if self._group is None:
            reduced, announced = buffers.publish(sums.held.pop(plan.root))[: sums.length], announce()
        else:
            shard, sent = self._finish_tree(plan, sums.held, buffers)
            crash_point(CrashPoint.ENGINE_BEFORE_GATHER, at=context.page.offset, who=context.page.engine)
            reduced, announced = self._all_gather(shard, sent, buffers, announce())
        for local in sums.held.values():
            buffers.give_back(local)
        sums.held.clear()
        return reduced, announced

    def _finish_tree(
        self, plan: ReductionPlan, held: Mapping[Span, torch.Tensor], buffers: Buffers
    ) -> tuple[torch.Tensor, list[Any]]:
        """Exchange shards of the subtrees, then sum this rank's shard over the rest of the tree.

        Returns:
            The summed shard, and the send operations, which may not have finished.
        """
        assert self._group is not None
        owners = plan.owners
        arriving = {span: buffers.shard(index) for index, span in enumerate(owners) if owners[span] != self.rank}
        tags = {span: _TAG_SPANS + index for index, span in enumerate(owners)}
        works = [_post(self._group.recv, [shard], owners[span], tags[span]) for span, shard in arriving.items()]
        sent: list[Any] = []
        for distance in range(1, self.size):  # each rank starts with another peer
            peer = (self.rank + distance) % self.size
            for span, total in held.items():
                sent.append(_post(self._group.send, [buffers.slice_of(total, peer)], peer, tags[span]))
            if distance == 1:
                crash_point(CrashPoint.ENGINE_IN_REDUCE, at=context.page.offset, who=context.page.engine)
        self._watchdog.wait(works)
        own = {span: buffers.slice_of(total, self.rank) for span, total in held.items()}
        return sum_upper_tree(plan.root, arriving, own), sent

    def _all_gather(
        self, shard: torch.Tensor, sent: Sequence[Any], buffers: Buffers, announced: int
    ) -> tuple[Reduced, int]:
        """Send this rank's shard and announcement to all other ranks, and receive theirs.

        gloo's own all-gather takes four times as long (measured with 25 million numbers between two processes, over
        lo). ``sent`` contains send operations that may not have finished; this waits for them, too.
        """
        group, result = self._group, buffers.next_result()
        own = buffers.slice_of(result, self.rank).copy_(shard)
        numbers = torch.full((self.size,), announced)
        peers = [(self.rank + distance) % self.size for distance in range(1, self.size)]  # each starts with another
        works = [*sent]
        for peer in peers:
            works.append(_post(group.recv, [buffers.slice_of(result, peer)], peer, _TAG_SHARD))
            works.append(_post(group.recv, [numbers[peer : peer + 1]], peer, _TAG_ANNOUNCED))
        for peer in peers:
            works.append(_post(group.send, [own], peer, _TAG_SHARD))
            works.append(_post(group.send, [numbers[self.rank : self.rank + 1]], peer, _TAG_ANNOUNCED))
        self._watchdog.wait(works)
        return result[: buffers.length], _unanimous(numbers)

    def _all_reduce(self, total: torch.Tensor, length: int, announce: Callable[[], int]) -> tuple[Reduced, int]:
        """Sum by a plain all-reduce. Each rank has its own place for its announcement in the summed tensor."""
        total[length + self.rank] = announce()
        if self._group is not None:
            options = c10d.AllreduceOptions()
            options.timeout = OPERATION_TIMEOUT
            self._watchdog.wait([_post(self._group.allreduce, [total], options)])
        return total[:length], _unanimous(total[length:])

    def send_reduced(self, reduced: Reduced, to: Sequence[int]) -> None:
        """Send the sum of the last reduction to the ranks ``to``, which have not applied it."""
        assert self._group is not None
        self._watchdog.wait([_post(self._group.send, [reduced.contiguous()], peer, _TAG_REDUCED) for peer in to])

    def receive_reduced(self, length: int, source: int) -> Reduced:
        """Receive the tensor that rank ``source`` sends with ``send_reduced``: a new tensor of shape (length,)."""
        assert self._group is not None
        reduced = torch.empty(length, dtype=self._dtype)
        self._watchdog.wait([_post(self._group.recv, [reduced], source, _TAG_REDUCED)])
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
        works: list[Any] = []
        mine = list(sources).index(self.rank)
        if mine == 0:
            shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in state.tensors.items()}
            text = json.dumps({"meta": state.meta, "shapes": shapes, "extra": extra}).encode()
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            for peer in to:
                works.append(_post(group.send, [torch.tensor([len(text)])], peer, _TAG_SIZE))
                works.append(_post(group.send, [data], peer, _TAG_TEXT))
        for index, piece in enumerate(_pieces([t.detach().cpu().contiguous() for t in state.tensors.values()])):
            if index % len(sources) == mine:
                works.extend(_post(group.send, [piece], peer, _TAG_PIECES + index) for peer in to)
        return lambda: self._watchdog.wait(works)

    def receive_state(self, adapter: Adapter, sources: Sequence[int]) -> Mapping[str, Any]:
        """Receive the state that the ranks ``sources`` send with ``send_state``, and fill ``adapter`` with it.

        Returns:
            The ``extra`` of the state.

        Raises:
            PeerLost: a connection broke. The adapter's state is incomplete then.
        """
        group = self._group
        assert group is not None
        size = torch.zeros(1, dtype=torch.int64)
        self._watchdog.wait([_post(group.recv, [size], sources[0], _TAG_SIZE)])
        text = torch.empty(int(size[0]), dtype=torch.uint8)
        self._watchdog.wait([_post(group.recv, [text], sources[0], _TAG_TEXT)])
        header = json.loads(text.numpy().tobytes())
        places = adapter.begin_import(header["meta"], header["shapes"])
        staged = {
            name: place
            if place.device.type == "cpu" and place.is_contiguous()
            else torch.empty(place.shape, dtype=place.dtype)
            for name, place in places.items()
        }
        self._watchdog.wait(
            [
                _post(group.recv, [piece], sources[index % len(sources)], _TAG_PIECES + index)
                for index, piece in enumerate(_pieces(staged.values()))
            ]
        )
        for name, place in places.items():
            if staged[name] is not place:
                place.copy_(staged[name])
        adapter.end_import()
        extra: Mapping[str, Any] = header["extra"]
        return extra

    def close(self) -> None:
        """Close the connections. This takes about 10 ms for each peer. Another thread may call it."""
        self._closed = True
        group, self._open_group = self._open_group, None  # this thread releases it, not the thread that waits in it
        self._watchdog.close()
        del group


def _pieces(tensors: Any) -> list[torch.Tensor]:
    """Return all bytes of contiguous tensors as views of at most 8 MiB, so that different sources can send different
    pieces."""
    flat = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors if tensor.numel()]
    return [piece for each in flat for piece in torch.split(each, _PIECE_BYTES)]


def _unanimous(announced: torch.Tensor) -> int:
    """Return the generation that every rank announced; 0: the ranks announced different ones.

    In that case no rank switches. The lower generation may have been taken back, and all ranks will soon announce the
    higher one.
    """
    lowest = int(announced.min())
    return lowest if lowest == int(announced.max()) else 0


def _post(operation: Any, *arguments: Any) -> Any:
    """Start an operation. Raises PeerLost if the connection has already broken."""
    try:
        return operation(*arguments)
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error
