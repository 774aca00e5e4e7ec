"""The data plane: groups of engines over torch.distributed. Room: runners; both frameworks' bytes go through here.

Raw process groups beside each other, never the global default group: the old one trains while the next is built.
Reduction buffers lie in host memory and gloo moves them, so the order of every addition is ours on any device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as _distributed

from edt_runner.engine.adapter import Adapter, Leaf, State, Vector
from edt_runner.engine.tree import ReductionPlan, Span, children
from edt_runner.errors import PeerLost

dist: Any = _distributed  # raw process groups have no type stubs

_BUILD_TIMEOUT = timedelta(seconds=30)
_OPERATION_TIMEOUT = timedelta(minutes=30)
"""A step may be as long as it likes; a dead peer is told by its supervisor, not by this."""
_PIECE_BYTES = 8 << 20
_TAG_SIZE, _TAG_TEXT, _TAG_PIECES, _TAG_SPANS = 1, 2, 1 << 16, 1 << 10


class GlooPlane:
    """Makes groups over the interface that has ``host``.

    Args:
        host: this node's address in the job.
        dtype: of leaves and sums: float32, or float64 where the model has such parameters.
        interface: network interface; None: found by ``host``.
    """

    def __init__(self, host: str, dtype: torch.dtype, interface: str | None = None) -> None:
        self._dtype = dtype
        if interface:
            self._device = dist.ProcessGroupGloo.create_device(interface=interface)
        else:
            self._device = dist.ProcessGroupGloo.create_device(hostname=host)

    def solo(self) -> GlooGroup:
        """A group of one, which needs no network."""
        return GlooGroup(None, 0, 1, self._dtype)

    def build(self, store: str, key: str, rank: int, size: int) -> GlooGroup:
        """Connect with all others that build ``key`` at the TCPStore ``store`` (host:port)."""
        host, _, port = store.rpartition(":")
        try:
            client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_BUILD_TIMEOUT)
            options = dist.ProcessGroupGloo._Options()
            options._devices = [self._device]
            options._timeout = _OPERATION_TIMEOUT
            group = dist.ProcessGroupGloo(dist.PrefixStore(key, client), rank, size, options)
        except RuntimeError as error:
            raise PeerLost(f"group {key} was not built: {error}") from error
        return GlooGroup(group, rank, size, self._dtype)


class GlooGroup:
    """One generation's engines. Not thread-safe; one main thread works with it."""

    def __init__(self, group: Any, rank: int, size: int, dtype: torch.dtype) -> None:
        self.rank, self.size = rank, size
        self._group, self._dtype = group, dtype
        self._buffers: dict[int, _Buffers] = {}

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def reduce(
        self,
        plan: ReductionPlan,
        length: int,
        fill: Callable[[int, Leaf], None],
        announce: Callable[[], int],
        *,
        exact: bool,
        before_sum: Callable[[], None],
    ) -> tuple[Vector, int]:
        """See ``Group.reduce``. The vector is valid until the next call with the same ``length``."""
        buffers = self._buffers.get(length)
        if buffers is None:
            buffers = self._buffers[length] = _Buffers(length, self.size, self._dtype)
        work = self._reduce_exact if exact else self._reduce_fast
        return work(plan, buffers, fill, announce, before_sum)

    def _reduce_exact(
        self,
        plan: ReductionPlan,
        buffers: _Buffers,
        fill: Callable[[int, Leaf], None],
        announce: Callable[[], int],
        before_sum: Callable[[], None],
    ) -> tuple[Vector, int]:
        own = plan.spans[self.rank]
        sums = {span: self._sum_subtree(span, buffers, fill) for span in own}
        before_sum()
        try:
            if self._group is None:
                buffers.result.copy_(sums[plan.root][: buffers.length])
                return buffers.result, announce()
            shard = self._finish_tree(plan, sums, buffers)
            buffers.outgoing[:-1].copy_(shard)
            buffers.outgoing[-1] = announce()
            _wait(_post(self._group._allgather_base, buffers.gathered, buffers.outgoing))
            rows = buffers.gathered.view(self.size, -1)
            torch.cat([rows[rank, :-1] for rank in range(self.size)], out=buffers.padded)
            return buffers.padded[: buffers.length], _unanimous(rows[:, -1])
        finally:
            for leaf in sums.values():
                buffers.give_back(leaf)

    def _sum_subtree(self, span: Span, buffers: _Buffers, fill: Callable[[int, Leaf], None]) -> torch.Tensor:
        if span[1] - span[0] == 1:
            leaf = buffers.take()
            fill(span[0], leaf[: buffers.length])
            return leaf
        left, right = (self._sum_subtree(child, buffers, fill) for child in children(span))
        left.add_(right)
        buffers.give_back(right)
        return left

    def _finish_tree(self, plan: ReductionPlan, sums: Mapping[Span, torch.Tensor], buffers: _Buffers) -> torch.Tensor:
        """Exchange shards of the subtrees, then add up this rank's shard of the rest of the tree."""
        assert self._group is not None
        owners = plan.owners
        arriving = {span: buffers.shard(index) for index, span in enumerate(owners) if owners[span] != self.rank}
        tags = {span: _TAG_SPANS + index for index, span in enumerate(owners)}
        works = [_post(self._group.recv, [shard], owners[span], tags[span]) for span, shard in arriving.items()]
        for step in range(1, self.size):  # everybody begins with another peer
            peer = (self.rank + step) % self.size
            for span, total in sums.items():
                works.append(_post(self._group.send, [buffers.slice_of(total, peer)], peer, tags[span]))
        for work in works:
            _wait(work)
        parts = {**arriving, **{span: buffers.slice_of(total, self.rank) for span, total in sums.items()}}
        return _sum_upper_tree(plan.root, parts)

    def _reduce_fast(
        self,
        plan: ReductionPlan,
        buffers: _Buffers,
        fill: Callable[[int, Leaf], None],
        announce: Callable[[], int],
        before_sum: Callable[[], None],
    ) -> tuple[Vector, int]:
        """Own leaves in order, then a plain all-reduce; each rank's announcement has a slot of its own."""
        total = buffers.total.zero_()
        leaf = buffers.take()
        for worker in plan.runs[self.rank]:
            fill(worker, leaf[: buffers.length])
            total[: buffers.length].add_(leaf[: buffers.length])
        buffers.give_back(leaf)
        before_sum()
        total[buffers.length + self.rank] = announce()
        if self._group is not None:
            _wait(_post(self._group.allreduce, [total]))
        return total[: buffers.length], _unanimous(total[buffers.length :])

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def start_sending(
        self, state: State, extra: Mapping[str, Any], donors: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """See ``Group.start_sending``."""
        group = self._group
        assert group is not None
        works: list[tuple[Any, torch.Tensor]] = []
        mine = list(donors).index(self.rank)
        if mine == 0:
            shapes = {name: [_dtype_name(t.dtype), list(t.shape)] for name, t in state.tensors.items()}
            text = json.dumps({"meta": state.meta, "shapes": shapes, "extra": extra}).encode()
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            for peer in to:
                works.append((_post(group.send, [torch.tensor([len(text)])], peer, _TAG_SIZE), data))
                works.append((_post(group.send, [data], peer, _TAG_TEXT), data))
        for index, piece in enumerate(_pieces([t.detach().cpu().contiguous() for t in state.tensors.values()])):
            if index % len(donors) == mine:
                works.extend((_post(group.send, [piece], peer, _TAG_PIECES + index), piece) for peer in to)

        def finish() -> None:
            for work, _keep in works:
                _wait(work)

        return finish

    def receive(self, adapter: Adapter, donors: Sequence[int]) -> Mapping[str, Any]:
        """See ``Group.receive``."""
        group = self._group
        assert group is not None
        size = torch.zeros(1, dtype=torch.int64)
        _wait(_post(group.recv, [size], donors[0], _TAG_SIZE))
        text = torch.empty(int(size[0]), dtype=torch.uint8)
        _wait(_post(group.recv, [text], donors[0], _TAG_TEXT))
        header = json.loads(text.numpy().tobytes())
        places = adapter.begin_import(header["meta"], header["shapes"])
        staged = {
            name: place
            if place.device.type == "cpu" and place.is_contiguous()
            else torch.empty(place.shape, dtype=place.dtype)
            for name, place in places.items()
        }
        works = [
            _post(group.recv, [piece], donors[index % len(donors)], _TAG_PIECES + index)
            for index, piece in enumerate(_pieces(staged.values()))
        ]
        for work in works:
            _wait(work)
        for name, place in places.items():
            if staged[name] is not place:
                place.copy_(staged[name])
        adapter.end_import()
        extra: Mapping[str, Any] = header["extra"]
        return extra

    def close(self) -> None:
        """Drop the connections; takes about 10 ms a peer."""
        self._group = None
        self._buffers.clear()


class _Buffers:
    """Memory of one reduction length, kept from step to step."""

    def __init__(self, length: int, size: int, dtype: torch.dtype) -> None:
        self.length, self._size = length, size
        self._shard = -(-length // size)
        self._dtype = dtype
        self._free: list[torch.Tensor] = []
        self._shards: list[torch.Tensor] = []
        self.result = torch.empty(length, dtype=dtype)
        self.total = torch.empty(length + size, dtype=dtype)
        self.padded = torch.empty(self._shard * size, dtype=dtype)
        self.outgoing = torch.empty(self._shard + 1, dtype=dtype)
        self.gathered = torch.empty((self._shard + 1) * size, dtype=dtype)

    def take(self) -> torch.Tensor:
        """A leaf, padded to whole shards; the padding is zero and stays zero."""
        return self._free.pop() if self._free else torch.zeros(self._shard * self._size, dtype=self._dtype)

    def give_back(self, leaf: torch.Tensor) -> None:
        self._free.append(leaf)

    def slice_of(self, leaf: torch.Tensor, rank: int) -> torch.Tensor:
        return leaf[rank * self._shard : (rank + 1) * self._shard]

    def shard(self, index: int) -> torch.Tensor:
        while len(self._shards) <= index:
            self._shards.append(torch.empty(self._shard, dtype=self._dtype))
        return self._shards[index]


def _sum_upper_tree(span: Span, parts: Mapping[Span, torch.Tensor]) -> torch.Tensor:
    """Finish the tree above the parts, in place."""
    part = parts.get(span)
    if part is not None:
        return part
    left, right = (_sum_upper_tree(child, parts) for child in children(span))
    return left.add_(right)


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


def _post(operation: Any, *arguments: Any) -> Any:
    """Start an operation; on a connection that has broken it raises at once."""
    try:
        return operation(*arguments)
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error


def _wait(work: Any) -> None:
    """Wait for an operation; whatever breaks it is a lost peer, never an error of user code."""
    try:
        work.wait()
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
