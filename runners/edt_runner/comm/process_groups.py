"""Groups of engines over torch.distributed: reductions and state transfer, for both frameworks.

Raw process groups stand beside each other: the old one trains while the next is built. The global default group is
never used. Reduction buffers lie in host memory and gloo moves them. With ``reduction="exact"`` the order of every
addition is that of ``schedule``, on any device; with ``"fast"`` it is gloo's. NCCL would be a second plane and
group here; ``engine.main`` and ``driver`` choose.
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
    """What a plane listens with between two ``renew``."""

    device: Any
    """gloo's, through which its groups connect to each other."""
    addresses: tuple[str, ...]
    shut: threading.Event
    """Set once the connections of all groups that were built on it have been shut."""


class GlooPlane:
    """Builds groups over the network interface that has ``host``. The data plane.

    Args:
        host: this node's address in the job.
        dtype: of locals and sums: float32, or float64 where the model has such parameters.
        interface: name of the network interface; None: it is found by ``host``.

    Raises:
        RuntimeError: gloo finds no such interface.
    """

    def __init__(self, host: str, dtype: torch.dtype, interface: str | None = None) -> None:
        self._host, self._interface, self._dtype = host, interface, dtype
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
        """``host:port`` at which others connect to this process, until ``renew``."""
        return self._endpoint.addresses

    def solo(self) -> GlooGroup:
        """A group of one, which needs no network."""
        return GlooGroup(None, 0, 1, self._dtype, self._endpoint.shut)

    def build(self, store: str, key: str, rank: int, size: int) -> GlooGroup:
        """Connect with the others that build the same group. All of them call this at about the same time.

        Args:
            store: ``host:port`` of the TCPStore at which they find each other.
            key: name of the group there; never used twice.
            rank: of this process in the group.
            size: processes in the group.

        Raises:
            PeerLost: the others did not come within 10 seconds (or EDT_HANG_SECONDS, if less), or a connection broke.
        """
        endpoint = self._endpoint  # the plane may be renewed while this builds; the group is of the endpoint before
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
        """Break every connection of every group, so that whatever waits on one raises PeerLost within 0.1 seconds.
        Called by another thread than the one that waits.

        Args:
            peers: addresses (``host:port``) of the others' planes and of the store.
        """
        connections.shut(own=self._endpoint.addresses, peers=peers)
        self._endpoint.shut.set()

    def renew(self) -> None:
        """Listen at new addresses: what is built from now on shares nothing with what was shut, of which a peer may
        still hold an address."""
        self._probe.clear()
        self._endpoint = self._listen()

    def close(self) -> None:
        """Stop listening for probes. None of its groups is used any more."""
        self._probe.close()


class GlooGroup:
    """The engines of one generation, connected. One thread works with it, and somebody closes it: until then its
    watchdog holds it.

    Every operation raises PeerLost where a connection broke or was shut; the group is of no more use then.

    Args:
        group: ``ProcessGroupGloo``; None: of a group of one.
        rank: of this process.
        size: ranks.
        dtype: of locals and sums.
        shut: is set once the group's connections have been shut.
    """

    def __init__(self, group: Any, rank: int, size: int, dtype: torch.dtype, shut: threading.Event) -> None:
        self.rank, self.size = rank, size
        self._open_group, self._dtype = group, dtype
        self._watchdog = Watchdog(shut, group)
        self._closed = False
        self._buffers: dict[int, Buffers] = {}

    @property
    def _group(self) -> Any:
        """The process group; None: a group of one.

        Raises:
            PeerLost: it is closed.
        """
        group = self._open_group
        if self._closed:
            raise PeerLost("the group is closed")
        return group

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def begin(self, length: int, *, exact: bool, previous: PartialSums | None = None) -> PartialSums:
        """Begin to sum a step.

        Args:
            length: numbers in a local.
            exact: sum in the order of the canonical tree; else a plain all-reduce, whose bits depend on ``size``.
            previous: of a try of this step that failed; what it has summed is used again, if ``exact``.
        """
        if length not in self._buffers:
            self._buffers[length] = Buffers(length, self.size, self._dtype)
        return PartialSums(length, self._buffers[length].next_total() if not exact else None, previous)

    def sum_own(self, plan: ReductionPlan, sums: PartialSums, fill: Callable[[int, Local], None]) -> None:
        """Sum this rank's micro-batches into ``sums``.

        Args:
            plan: of the step.
            sums: of ``begin``.
            fill: called with the index of each own micro-batch that is not summed yet, ascending, and with a tensor of
                shape (length,) that it fills with that micro-batch's local.
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
            plan: of the step.
            sums: with all of this rank's micro-batches. It is used up when this returns, and whole until then.
            announce: called as late as possible; the number that this rank announces to all others.

        Returns:
            The sum, of shape (length,), which stays valid until the next reduction of this length has returned; and the
            number that all ranks announced alike, or 0 where they differ.
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
        """Exchange shards of the subtrees, then sum this rank's shard over the rest of the tree. Returns that, and the
        sends, which may still be going on."""
        assert self._group is not None
        owners = plan.owners
        arriving = {span: buffers.shard(index) for index, span in enumerate(owners) if owners[span] != self.rank}
        tags = {span: _TAG_SPANS + index for index, span in enumerate(owners)}
        works = [_post(self._group.recv, [shard], owners[span], tags[span]) for span, shard in arriving.items()]
        sent: list[Any] = []
        for distance in range(1, self.size):  # every rank begins with another peer
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
        """Send this rank's shard and announcement to all, and receive theirs in their places. gloo's own all-gather
        takes four times as long (25 million numbers between two, over lo). ``sent``: operations that may still be going
        on."""
        group, result = self._group, buffers.next_result()
        own = buffers.slice_of(result, self.rank).copy_(shard)
        numbers = torch.full((self.size,), announced)
        peers = [(self.rank + distance) % self.size for distance in range(1, self.size)]  # each begins with another
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
        """A plain sum, in which each rank's announcement has a place of its own."""
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
        """What rank ``source`` sends with ``send_reduced``: a new tensor of shape (length,)."""
        assert self._group is not None
        reduced = torch.empty(length, dtype=self._dtype)
        self._watchdog.wait([_post(self._group.recv, [reduced], source, _TAG_REDUCED)])
        return reduced

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def send_state(
        self, state: State, extra: Mapping[str, Any], sources: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """Begin to send a state, whose tensors must stand still until it has been sent.

        Args:
            state: equal in all ``sources``; tensors on any device, each of which is sent as its bytes.
            extra: plain JSON that goes with it.
            sources: ranks that send, this one among them: each sends every so many-th piece of 8 MB.
            to: ranks that receive.

        Returns:
            A function that waits until all has been sent, and raises PeerLost where that fails.
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
        """Fill ``adapter`` with the state that the ranks ``sources`` send with ``send_state``; returns its ``extra``.
        Where this raises PeerLost the adapter's state is torn."""
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
        """Drop the connections, which takes about 10 ms a peer. May be called by another thread."""
        self._closed = True
        group, self._open_group = self._open_group, None  # this thread drops it, and not the one that waits for it
        self._watchdog.close()
        del group


def _pieces(tensors: Any) -> list[torch.Tensor]:
    """All bytes of contiguous tensors, as views of at most 8 MB: different sources can send them."""
    flat = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors if tensor.numel()]
    return [piece for each in flat for piece in torch.split(each, _PIECE_BYTES)]


def _unanimous(announced: torch.Tensor) -> int:
    """The generation that every rank announced; 0: they differ. Then nobody switches: the lower one may have been taken
    back since, and the higher one will be announced by all soon."""
    lowest = int(announced.min())
    return lowest if lowest == int(announced.max()) else 0


def _post(operation: Any, *arguments: Any) -> Any:
    """Start an operation, which fails at once where the connection has broken."""
    try:
        return operation(*arguments)
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error
