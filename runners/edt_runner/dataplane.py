"""The data plane: groups of engines over torch.distributed. Room: runners; both frameworks' bytes go through here.

Raw process groups beside each other, never the global default group: the old one trains while the next is built.
Reduction buffers lie in host memory and gloo moves them, so the order of every addition is ours on any device.
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

from edt_runner import environment, sockets
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine import position
from edt_runner.engine.adapter import Adapter, Leaf, State, Vector
from edt_runner.engine.tree import ReductionPlan, Span, children
from edt_runner.errors import PeerLost
from edt_runner.sums import Buffers, Sums, sum_upper_tree
from edt_runner.waiter import OPERATION_TIMEOUT, Waiter

dist: Any = _distributed  # raw process groups have no type stubs
c10d: Any = _c10d

_BUILD_SECONDS = 10.0
_PIECE_BYTES = 8 << 20
_TAG_SIZE, _TAG_TEXT, _TAG_VECTOR, _TAG_SHARD, _TAG_ANNOUNCED = 1, 2, 3, 4, 5
_TAG_SPANS, _TAG_PIECES = 1 << 10, 1 << 16


@dataclass(frozen=True)
class _Incarnation:
    """A plane between two ``renew``."""

    device: Any
    """Of gloo; its groups connect to each other through it."""
    addresses: tuple[str, ...]
    shut: threading.Event
    """Set once the connections of all that was built on it have been shut."""


class GlooPlane:
    """Makes groups over the interface that has ``host``.

    Args:
        host: this node's address in the job.
        dtype: of leaves and sums: float32, or float64 where the model has such parameters.
        interface: network interface; None: found by ``host``.
    """

    def __init__(self, host: str, dtype: torch.dtype, interface: str | None = None) -> None:
        self._host, self._interface, self._dtype = host, interface, dtype
        self._door = sockets.Door(host)
        self.door = self._door.address
        self._now = self._open()

    def _open(self) -> _Incarnation:
        before = sockets.listening()
        if self._interface:
            device = dist.ProcessGroupGloo.create_device(interface=self._interface)
        else:
            device = dist.ProcessGroupGloo.create_device(hostname=self._host)
        addresses = tuple(address for inode, address in sockets.listening().items() if inode not in before)
        return _Incarnation(device, addresses, threading.Event())

    @property
    def addresses(self) -> tuple[str, ...]:
        """See ``Plane.addresses``."""
        return self._now.addresses

    def solo(self) -> GlooGroup:
        """A group of one, which needs no network."""
        return GlooGroup(None, 0, 1, self._dtype, self._now.shut)

    def build(self, store: str, key: str, rank: int, size: int) -> GlooGroup:
        """Connect with all others that build ``key`` at the TCPStore ``store`` (host:port)."""
        now = self._now  # the plane may be renewed while this builds, and then the group is of the one before
        host, _, port = store.rpartition(":")
        timeout = timedelta(seconds=min(_BUILD_SECONDS, max(1.0, environment.hang_seconds())))
        try:
            client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
            options = dist.ProcessGroupGloo._Options()
            options._devices = [now.device]
            options._timeout = timeout
            group = dist.ProcessGroupGloo(dist.PrefixStore(key, client), rank, size, options)
        except RuntimeError as error:
            raise PeerLost(f"group {key} was not built: {error}") from error
        return GlooGroup(group, rank, size, self._dtype, now.shut)

    def shut(self, peers: Collection[str]) -> None:
        """See ``Plane.shut``."""
        sockets.shut(own=self._now.addresses, peers=peers)
        self._now.shut.set()

    def renew(self) -> None:
        """See ``Plane.renew``."""
        self._door.clear()
        self._now = self._open()

    def close(self) -> None:
        """Of its groups none is used any more."""
        self._door.close()

    def reaches(self, door: str) -> bool:
        """See ``Plane.reaches``."""
        return sockets.reaches(door)


class GlooGroup:
    """One generation's engines. Not thread-safe; one main thread works with it."""

    def __init__(self, group: Any, rank: int, size: int, dtype: torch.dtype, shut: threading.Event) -> None:
        self.rank, self.size = rank, size
        self._open_group, self._dtype = group, dtype
        self._waiter = Waiter(shut)
        self._closed = False
        self._buffers: dict[int, Buffers] = {}

    @property
    def _group(self) -> Any:
        """The process group; None: a group of one. Raises PeerLost once it is closed."""
        group = self._open_group
        if self._closed:
            raise PeerLost("the group is closed")
        return group

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def begin(self, length: int, *, exact: bool, kept: Sums | None = None) -> Sums:
        """See ``Group.begin``."""
        if length not in self._buffers:
            self._buffers[length] = Buffers(length, self.size, self._dtype)
        return Sums(length, self._buffers[length].next_total() if not exact else None, kept)

    def gather(self, plan: ReductionPlan, sums: Sums, fill: Callable[[int, Leaf], None]) -> None:
        """See ``Group.gather``."""
        buffers = self._buffers[sums.length]
        if sums.total is not None:
            leaf = buffers.take()
            for worker in plan.runs[self.rank]:
                fill(worker, leaf[: sums.length])
                sums.total[: sums.length].add_(leaf[: sums.length])
            buffers.give_back(leaf)
            return
        for span in plan.spans[self.rank]:
            self._sum_subtree(span, sums, buffers, fill)

    def _sum_subtree(self, span: Span, sums: Sums, buffers: Buffers, fill: Callable[[int, Leaf], None]) -> torch.Tensor:
        kept = sums.kept.pop(span, None)
        if kept is not None:
            leaf = buffers.take()
            leaf[: sums.length].copy_(kept[: sums.length])
            sums.held[span] = leaf
            return leaf
        if span[1] - span[0] == 1:
            leaf = buffers.take()
            fill(span[0], leaf[: sums.length])
            sums.held[span] = leaf
            return leaf
        first, second = children(span)
        left = self._sum_subtree(first, sums, buffers, fill)
        right = self._sum_subtree(second, sums, buffers, fill)
        left.add_(right)
        del sums.held[first], sums.held[second]
        sums.held[span] = left
        buffers.give_back(right)
        return left

    def combine(self, plan: ReductionPlan, sums: Sums, announce: Callable[[], int]) -> tuple[Vector, int]:
        """See ``Group.combine``."""
        buffers = self._buffers[sums.length]
        if sums.total is not None:
            return self._all_reduce(sums.total, sums.length, announce)
        if self._group is None:
            vector, announced = buffers.publish(sums.held.pop(plan.root))[: sums.length], announce()
        else:
            shard, sent = self._finish_tree(plan, sums.held, buffers)
            crash_point(CrashPoint.ENGINE_BEFORE_GATHER, at=position.board.tick, who=position.board.engine)
            vector, announced = self._exchange(shard, sent, buffers, announce())
        for leaf in sums.held.values():
            buffers.give_back(leaf)
        sums.held.clear()
        return vector, announced

    def _finish_tree(
        self, plan: ReductionPlan, held: Mapping[Span, torch.Tensor], buffers: Buffers
    ) -> tuple[torch.Tensor, list[Any]]:
        """Exchange shards of the subtrees, then add up this rank's shard of the rest of the tree. Returns the sends,
        too, which may still be going on."""
        assert self._group is not None
        owners = plan.owners
        arriving = {span: buffers.shard(index) for index, span in enumerate(owners) if owners[span] != self.rank}
        tags = {span: _TAG_SPANS + index for index, span in enumerate(owners)}
        works = [_post(self._group.recv, [shard], owners[span], tags[span]) for span, shard in arriving.items()]
        sent: list[Any] = []
        for step in range(1, self.size):  # everybody begins with another peer
            peer = (self.rank + step) % self.size
            for span, total in held.items():
                sent.append(_post(self._group.send, [buffers.slice_of(total, peer)], peer, tags[span]))
            if step == 1:
                crash_point(CrashPoint.ENGINE_IN_REDUCE, at=position.board.tick, who=position.board.engine)
        self._wait(works)
        own = {span: buffers.slice_of(total, self.rank) for span, total in held.items()}
        return sum_upper_tree(plan.root, arriving, own), sent

    def _exchange(
        self, shard: torch.Tensor, sent: Sequence[Any], buffers: Buffers, announced: int
    ) -> tuple[Vector, int]:
        """Everybody's shard and announcement to everybody, straight to their places. gloo's own all-gather takes four
        times as long (25 million numbers between two, over lo). ``sent``: what may still be going on."""
        group, result = self._group, buffers.next_result()
        own = buffers.slice_of(result, self.rank).copy_(shard)
        numbers = torch.full((self.size,), announced)
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]  # everybody begins with another
        works = [*sent]
        for peer in peers:
            works.append(_post(group.recv, [buffers.slice_of(result, peer)], peer, _TAG_SHARD))
            works.append(_post(group.recv, [numbers[peer : peer + 1]], peer, _TAG_ANNOUNCED))
        for peer in peers:
            works.append(_post(group.send, [own], peer, _TAG_SHARD))
            works.append(_post(group.send, [numbers[self.rank : self.rank + 1]], peer, _TAG_ANNOUNCED))
        self._wait(works)
        return result[: buffers.length], _unanimous(numbers)

    def _all_reduce(self, total: torch.Tensor, length: int, announce: Callable[[], int]) -> tuple[Vector, int]:
        """A plain sum; each rank's announcement has a slot of its own."""
        total[length + self.rank] = announce()
        if self._group is not None:
            self._wait([_post(self._group.allreduce, [total], _patient(c10d.AllreduceOptions()))])
        return total[:length], _unanimous(total[length:])

    def _wait(self, works: Sequence[Any]) -> None:
        """Until all operations are done. Raises PeerLost where one broke, or all were given up."""
        group = self._open_group
        try:
            self._waiter.wait(works)
        except PeerLost:
            if self._waiter.stuck:
                self._waiter.keep(group)
            raise

    def give(self, vector: Vector, to: Sequence[int]) -> None:
        """See ``Group.give``."""
        assert self._group is not None
        self._wait([_post(self._group.send, [vector.contiguous()], peer, _TAG_VECTOR) for peer in to])

    def take(self, length: int, donor: int) -> Vector:
        """See ``Group.take``."""
        assert self._group is not None
        vector = torch.empty(length, dtype=self._dtype)
        self._wait([_post(self._group.recv, [vector], donor, _TAG_VECTOR)])
        return vector

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def start_sending(
        self, state: State, extra: Mapping[str, Any], donors: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """See ``Group.start_sending``."""
        group = self._group
        assert group is not None
        works: list[Any] = []
        mine = list(donors).index(self.rank)
        if mine == 0:
            shapes = {name: [_dtype_name(t.dtype), list(t.shape)] for name, t in state.tensors.items()}
            text = json.dumps({"meta": state.meta, "shapes": shapes, "extra": extra}).encode()
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            for peer in to:
                works.append(_post(group.send, [torch.tensor([len(text)])], peer, _TAG_SIZE))
                works.append(_post(group.send, [data], peer, _TAG_TEXT))
        for index, piece in enumerate(_pieces([t.detach().cpu().contiguous() for t in state.tensors.values()])):
            if index % len(donors) == mine:
                works.extend(_post(group.send, [piece], peer, _TAG_PIECES + index) for peer in to)
        return lambda: self._wait(works)

    def receive(self, adapter: Adapter, donors: Sequence[int]) -> Mapping[str, Any]:
        """See ``Group.receive``."""
        group = self._group
        assert group is not None
        size = torch.zeros(1, dtype=torch.int64)
        self._wait([_post(group.recv, [size], donors[0], _TAG_SIZE)])
        text = torch.empty(int(size[0]), dtype=torch.uint8)
        self._wait([_post(group.recv, [text], donors[0], _TAG_TEXT)])
        header = json.loads(text.numpy().tobytes())
        places = adapter.begin_import(header["meta"], header["shapes"])
        staged = {
            name: place
            if place.device.type == "cpu" and place.is_contiguous()
            else torch.empty(place.shape, dtype=place.dtype)
            for name, place in places.items()
        }
        self._wait(
            [
                _post(group.recv, [piece], donors[index % len(donors)], _TAG_PIECES + index)
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
        """Drop the connections; takes about 10 ms a peer. May be called by another thread than the one that works."""
        self._closed = True
        group, self._open_group = self._open_group, None
        self._waiter.close()
        if self._waiter.stuck and group is not None:
            self._waiter.keep(group)


def _pieces(tensors: Any) -> list[torch.Tensor]:
    """All bytes of contiguous tensors, in pieces that can come from several donors."""
    found: list[torch.Tensor] = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1).view(torch.uint8) if tensor.numel() else None
        if flat is not None:
            found.extend(torch.split(flat, _PIECE_BYTES))
    return found


def _unanimous(announced: torch.Tensor) -> int:
    """The generation that every rank announced; 0: they differ. A lower one of two may have been taken back
    since, and whoever announced it would switch to what is no more; the higher will be announced by all soon."""
    lowest = int(announced.min())
    return lowest if lowest == int(announced.max()) else 0


def _patient(options: Any) -> Any:
    """A collective's options, with the time that an operation may take."""
    options.timeout = OPERATION_TIMEOUT
    return options


def _post(operation: Any, *arguments: Any) -> Any:
    """Start an operation; on a connection that has broken it raises at once."""
    try:
        return operation(*arguments)
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
