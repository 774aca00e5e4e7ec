"""The sums that one engine makes of its own micro-batches in one step, and the memory for them. No network.

A *local* is a flat tensor of shape (length,) in the memory of the device that the model computes on: the numbers that
one micro-batch adds to the reduction. Its bits and those of all sums are those of a sum in the canonical order.
The sum of a subtree has the same shape. A local is never kept by itself where it can be added at once: the first
micro-batch of a subtree is written to a buffer, the second is added to it, and so on up the tree. So an engine of n
micro-batches needs about log2(n) buffers, at least one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from edt_runner.host_copies import pinned as pinned_memory
from edt_runner.splits import Span, children
from edt_runner.step_times import Phase, clock

HOST = torch.device("cpu")
_SMALL = 1 << 14
"""Tensors of fewer numbers are added with one call for all of them."""
_CHUNK = 1 << 17
"""How many numbers are scaled and added at a time on a processor, so that they stay in a core's cache in between."""
_DEVICE_CHUNK = 1 << 26
"""The same on a GPU, where only the memory for the products matters, and each operation costs a launch."""


def _chunk(tensor: torch.Tensor) -> int:
    return _CHUNK if tensor.device.type == "cpu" else _DEVICE_CHUNK


def is_exact(factor: float) -> bool:
    """Whether a product with ``factor`` is never rounded. Then it can be made and added in one pass, with or without a
    fused multiply-add of the processor. A factor below 1 rounds numbers near the smallest float."""
    return factor >= 1.0 and math.frexp(factor)[0] == 0.5


class Sink:
    """Takes the numbers of one micro-batch, in parts and in any order, each number once.

    Args:
        target: tensor of shape (length,) that the numbers are written to, or added to.
        adds: whether they are added.
        folds: pairs (into, from) of further tensors of that shape. When numbers have reached ``target``, they are added
            from there to the first ``into``, and so on: each pair's ``from`` is the one before's ``into``.
        ready: is called with (start, end) when these numbers have reached their last place.
        fuses: whether a product may be added without being rounded first, in one pass over memory. Sums of the same
            numbers then differ from one split to another.
        scratch: gives memory of shape (length,) that is free until the micro-batch is done; None: new memory.
    """

    def __init__(
        self,
        target: torch.Tensor,
        *,
        adds: bool,
        folds: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
        ready: Callable[[int, int], None] | None = None,
        scratch: Callable[[], torch.Tensor] | None = None,
        fuses: bool = False,
    ) -> None:
        self.target, self.adds, self._folds, self._fuses = target, adds, folds, fuses
        self._ready, self._scratch = ready, scratch or (lambda: torch.empty_like(target))
        self.missing = len(target)
        """How many numbers have not been put yet."""
        self.is_watched = ready is not None
        """Whether somebody wants to know early which numbers have reached their last place."""

    def put(self, start: int, values: torch.Tensor, factor: float = 1.0) -> None:
        """Take ``values`` x ``factor`` as the numbers from ``start`` on.

        Args:
            start: position of the first number.
            values: any tensor. It is not changed: others may need it, and it may be a constant of a graph.
            factor: is multiplied first, in the vector's own type. The product is rounded before it is added, unless the
                sink ``fuses``.
        """
        with clock.within(Phase.COPIES):
            end = start + values.numel()
            place = self.target[start:end]
            if values.is_sparse:
                values = values.to_dense()
            if values.dtype is not place.dtype or values.device != place.device:
                values = values.to(place.device, place.dtype)
            if self.adds:
                self._add(start, place, values, factor)
            elif factor == 1.0:
                place.view(values.shape).copy_(values)
            else:
                torch.mul(values, factor, out=place.view(values.shape))
            self._done(start, end)

    def put_all(self, places: list[torch.Tensor], values: list[torch.Tensor], factor: float) -> None:
        """Take many small tensors at once. ``put_range`` must follow. Their products may be in memory together.

        Args:
            places: views of ``target``, of the shapes of ``values``.
            values: tensors of the vector's type and on its device. They are not changed.
            factor: as in ``put``.
        """
        if not values:
            return
        if not self.adds:
            torch._foreach_copy_(places, values)
            if factor != 1.0:
                torch._foreach_mul_(places, factor)
        elif self._fuses or is_exact(factor):
            torch._foreach_add_(places, values, alpha=factor)
        else:
            pairs = list(zip(places, values, strict=True))
            most = _SMALL if self.target.device.type == "cpu" else _DEVICE_CHUNK
            for some in _bundles([pair for pair in pairs if pair[1].numel() < most], most):
                products = torch._foreach_mul([each for _, each in some], factor)
                torch._foreach_add_([place for place, _ in some], products)
            for place, each in pairs:
                if each.numel() >= most:
                    _add_product(place.reshape(-1), each.reshape(-1), factor)

    def put_range(self, start: int, end: int) -> None:
        """Note that all numbers from ``start`` to ``end`` - 1 have been given to ``target`` by ``put_all``."""
        chunk = _chunk(self.target)
        for low in range(start, end, chunk) if self._folds else ():
            self._fold(low, min(end, low + chunk))
        self._done(start, end)

    def put_zeros(self, start: int, end: int) -> None:
        """Take zeros as the numbers from ``start`` to ``end`` - 1."""
        if self.adds:  # not nothing: -0.0 + 0.0 is 0.0
            self.target[start:end].add_(0.0)
            self._fold(start, end)
        else:
            self.target[start:end].zero_()
        self._done(start, end)

    @contextmanager
    def whole(self) -> Iterator[torch.Tensor]:
        """A context that yields a tensor of shape (length,), to be filled with all numbers."""
        vector = self._scratch() if self.adds else self.target
        yield vector
        with clock.within(Phase.COPIES):
            if self.adds:
                self._add(0, self.target, vector, 1.0)
            self._done(0, len(vector))

    def _add(self, start: int, place: torch.Tensor, values: torch.Tensor, factor: float) -> None:
        exact = self._fuses or is_exact(factor)
        if exact and not self._folds:
            place.view(values.shape).add_(values, alpha=factor)
            return
        flat = values.reshape(-1)
        if not self._folds:
            _add_product(place, flat, factor)
            return
        chunk = _chunk(place)
        for low in range(0, len(flat), chunk):
            part = flat[low : low + chunk]
            if exact:
                place[low : low + chunk].add_(part, alpha=factor)
            else:
                _add_product(place[low : low + chunk], part, factor)
            self._fold(start + low, start + low + len(part))

    def _fold(self, start: int, end: int) -> None:
        for into, source in self._folds:
            into[start:end].add_(source[start:end])

    def _done(self, start: int, end: int) -> None:
        self.missing -= end - start
        if self._ready is not None:
            self._ready(start, end)


def _add_product(place: torch.Tensor, values: torch.Tensor, factor: float) -> None:
    """Add ``values`` x ``factor`` to ``place``, both of one dimension. The product is rounded first."""
    chunk = _chunk(place)
    product = torch.empty(min(len(values), chunk), dtype=place.dtype, device=place.device)
    for low in range(0, len(values), chunk):
        part = values[low : low + chunk]
        place[low : low + chunk].add_(torch.mul(part, factor, out=product[: len(part)]))


def _bundles(
    pairs: list[tuple[torch.Tensor, torch.Tensor]], most: int
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Cut pairs of tensors into lists. On a processor there is one list, since only small tensors are in it; on a GPU
    each list has about ``most`` numbers, since all of its products are in memory together."""
    some: list[tuple[torch.Tensor, torch.Tensor]] = []
    numbers = 0
    for place, each in pairs:
        some.append((place, each))
        numbers += each.numel() if place.device.type != "cpu" else 0
        if numbers >= most:
            yield some
            some, numbers = [], 0
    if some:
        yield some


Fill = Callable[[int, Sink], None]
"""Is called with the number of a micro-batch, and with a sink that takes its local."""
Ready = Callable[[Span, torch.Tensor, int, int], None] | None
"""Is called with a subtree, its sum and (start, end), when these numbers of the sum are final. None: nobody needs to
know."""

TOTAL: Span = (0, 0)
"""Stands for the total of a fast reduction, which has no subtrees."""


class Memory:
    """Memory for the reductions of vectors of one length. It is used again in each step.

    Args:
        length: how many numbers a vector has.
        dtype: dtype of all tensors.
        device: the device that the memory is on.
        pinned: whether it is host memory that a GPU can copy to and from while both go on.
    """

    def __init__(self, length: int, dtype: torch.dtype, device: torch.device = HOST, *, pinned: bool = False) -> None:
        self.length, self.dtype, self.device, self._pinned = length, dtype, device, pinned
        self._free: list[torch.Tensor] = []
        self._used = self._most = 0
        """How many buffers are in use, and the most that were at once since ``begin``."""
        self._arriving: dict[tuple[int, int], torch.Tensor] = {}
        self._published: torch.Tensor | None = None
        self._results: list[torch.Tensor | None] = [None, None]
        self._wholes: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(self) -> torch.Tensor:
        """Return a buffer of shape (length,). Its contents are undefined."""
        self._used += 1
        self._most = max(self._most, self._used)
        return self._free.pop() if self._free else self._empty(self.length)

    def _empty(self, length: int) -> torch.Tensor:
        if self._pinned:
            return pinned_memory((length,), self.dtype)
        return torch.empty(length, dtype=self.dtype, device=self.device)

    def give_back(self, *buffers: torch.Tensor) -> None:
        """Return buffers from ``take``, of this memory or another, that are not used any more."""
        self._used = max(0, self._used - len(buffers))
        self._free.extend(buffers)

    def publish(self, buffer: torch.Tensor) -> torch.Tensor:
        """Keep a buffer from ``take`` as the result of a reduction, until ``begin``."""
        self._published = buffer
        return buffer

    def begin(self) -> None:
        """A step begins: nobody needs the published result of the step before. What that step did not use is freed,
        because a split over more engines needs less."""
        if self._published is not None:
            self.give_back(self._published)
            self._published = None
        del self._free[self._most :]
        self._most = self._used

    def result(self, extra: int = 0, *, again: bool) -> torch.Tensor:
        """Return a tensor of shape (length + ``extra``,) for the sum over all engines.

        Args:
            extra: further numbers.
            again: whether it may be the tensor of the step before. If not, two are used in turn.
        """
        if again:
            self._results[1] = None
        else:
            self._results.reverse()
        found = self._results[0]
        if found is None or len(found) != self.length + extra:
            found = self._results[0] = self._empty(self.length + extra)
            self._wholes.append((found, found[: self.length]))
        self._wholes = [(of, whole) for of, whole in self._wholes if any(of is each for each in self._results)]
        return found

    def without_extra(self, result: torch.Tensor) -> torch.Tensor:
        """Return the first ``length`` numbers of a tensor of ``result``, as a view that is always the same object."""
        return next(whole for of, whole in self._wholes if of is result)

    def arriving(self, slot: int, index: int, size: int) -> torch.Tensor:
        """Return a tensor of shape (size,) for numbers that arrive. There is one for each (slot, index)."""
        found = self._arriving.get((slot, index))
        if found is None or len(found) < size:
            found = self._arriving[slot, index] = self._empty(size)
        return found[:size]


class PartialSums:
    """The sums that one engine has made of its micro-batches of one step.

    The sums stay when the group is lost. So after a crash, only the lost micro-batches are computed again.

    Args:
        memory: memory for vectors of the step's length.
        total: for a fast reduction, a tensor of shape (length + further numbers,), whose contents are undefined. After
            a failed all-reduce they are invalid. None: the reduction is exact.
        previous: the sums of a failed try; an exact reduction takes over its subtrees.
    """

    def __init__(self, memory: Memory, total: torch.Tensor | None, previous: PartialSums | None) -> None:
        self.memory, self.total = memory, total
        self.length, self.dtype = memory.length, memory.dtype
        self.held: dict[Span, torch.Tensor] = {}
        """Sums of subtrees."""
        self.kept: dict[Span, torch.Tensor] = {}
        """Sums of subtrees that were taken over from a failed try and are not used yet."""
        if previous is not None and total is None:
            self.kept = {**previous.kept, **previous.held}

    def spans(self) -> tuple[Span, ...]:
        """Return the subtrees whose sums are here, in ascending order."""
        return tuple(sorted({**self.kept, **self.held}))

    def micro_batches(self) -> tuple[int, ...]:
        """Return the micro-batches in these sums, in ascending order. A fast reduction has none here, because no other
        group can use its sums."""
        return tuple(index for low, high in self.spans() for index in range(low, high))

    def restrict(self, micro_batches: Sequence[int]) -> None:
        """Forget every subtree that contains a micro-batch outside of ``micro_batches``."""
        allowed = set(micro_batches)
        for sums in (self.kept, self.held):
            for span in [span for span in sums if not allowed.issuperset(range(*span))]:
                del sums[span]

    def tensors(self) -> list[torch.Tensor]:
        """Return all sums, each of shape (length,)."""
        return [self.whole] if self.total is not None else list(self.held.values())

    @property
    def whole(self) -> torch.Tensor:
        """The numbers of the total of a fast reduction, of shape (length,). It is the same object in each step that
        uses the same memory."""
        assert self.total is not None
        return self.memory.without_extra(self.total)

    # ── summing ───────────────────────────────────────────────────────────────────────────────────────────────
    def sum_all(self, micro_batches: Sequence[int], fill: Fill, ready: Ready) -> None:
        """Sum micro-batches in the order in which they come, for a fast reduction.

        Args:
            micro_batches: numbers of this engine's micro-batches.
            fill: fills a sink with a micro-batch's local.
            ready: is told which numbers of the total are final; the subtree is ``TOTAL``.
        """
        assert self.total is not None
        place = self.whole
        for number, index in enumerate(micro_batches):
            when_final = _ready_for(ready, TOTAL, place) if number == len(micro_batches) - 1 else None
            self._fill(fill, index, place, adds=number > 0, ready=when_final)
        if not micro_batches:
            place.zero_()
            if ready is not None:
                ready(TOTAL, place, 0, self.length)

    def sum_subtree(self, root: Span, fill: Fill, ready: Ready) -> None:
        """Sum the micro-batches of a subtree, in the order of the tree. Kept sums are used again.

        Args:
            root: the node of the tree.
            fill: fills a sink with a micro-batch's local.
            ready: is told which numbers of the sum are final.
        """
        for unit, lefts in self._units(root):
            self._sum_unit(root, unit, lefts, fill, ready)

    def _units(self, root: Span) -> Iterator[tuple[Span, tuple[Span, ...]]]:
        """Yield, from left to right, each kept subtree and each micro-batch that is in none, with the left siblings
        that are complete together with it: that of the unit itself, that of their parent, and so on."""
        waiting: list[tuple[Span, tuple[Span, ...]]] = [(root, ())]
        while waiting:
            node, lefts = waiting.pop()
            if node in self.kept or node[1] - node[0] == 1:
                yield node, lefts
                continue
            first, second = children(node)
            waiting.append((second, (first, *lefts)))
            waiting.append((first, ()))

    def _sum_unit(self, root: Span, unit: Span, lefts: tuple[Span, ...], fill: Fill, ready: Ready) -> None:
        buffers = [self.held[left] for left in lefts]
        folds = list(zip(buffers[1:], buffers[:-1], strict=True))
        whole = (lefts[-1] if lefts else unit)[0] == root[0] and unit[1] == root[1]
        kept = self.kept.pop(unit, None)
        target = buffers[0] if buffers else kept if kept is not None else self.memory.take()
        into = buffers[-1] if buffers else target
        when_final = _ready_for(ready, root, into) if whole else None
        for left in lefts:  # if ``fill`` raises, these are no longer what they were
            del self.held[left]
        if kept is None:
            self._fill(fill, unit[0], target, adds=bool(lefts), folds=folds, ready=when_final)
        elif lefts:
            Sink(target, adds=True, folds=folds, ready=when_final).put(0, kept)
            self.memory.give_back(kept)
        elif when_final is not None:
            when_final(0, self.length)
        self.memory.give_back(*buffers[:-1])
        self.held[lefts[-1][0] if lefts else unit[0], unit[1]] = into

    def _fill(
        self,
        fill: Fill,
        index: int,
        target: torch.Tensor,
        *,
        adds: bool,
        folds: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
        ready: Callable[[int, int], None] | None,
        fuses: bool = False,
    ) -> None:
        taken: list[torch.Tensor] = []

        def scratch() -> torch.Tensor:
            taken.append(self.memory.take())
            return taken[-1]

        sink = Sink(target, adds=adds, folds=folds, ready=ready, scratch=scratch, fuses=fuses)
        fill(index, sink)
        self.memory.give_back(*taken)
        if sink.missing:
            raise RuntimeError(f"micro-batch {index}: {sink.missing} of {len(target)} numbers were not put")


def _ready_for(ready: Ready, span: Span, total: torch.Tensor) -> Callable[[int, int], None] | None:
    """``ready`` for the numbers of one sum, as a sink calls it: with (start, end)."""
    return None if ready is None else lambda start, end: ready(span, total, start, end)


def sum_upper_tree(
    span: Span, parts: Mapping[Span, torch.Tensor], own: frozenset[Span], out: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum one shard over the upper tree, above the subtrees that each rank has summed alone.

    Args:
        span: the node whose sum is wanted; the caller begins with the root.
        parts: shards of all ranks' subtrees, each of shape (shard,). Those that are not ``own`` are overwritten.
        own: subtrees of this rank, which are not changed, so that another try can use them. No two are siblings.
        out: tensor of shape (shard,) for the sum; None: one of ``parts`` gets it.

    Returns:
        The sum, of shape (shard,).
    """
    part = parts.get(span)
    if part is not None:
        return part if out is None else out.copy_(part)
    first, second = children(span)
    left, right = sum_upper_tree(first, parts, own), sum_upper_tree(second, parts, own)
    if out is not None:
        return torch.add(left, right, out=out)
    return right.add_(left) if first in own else left.add_(right)  # a sum of two is the same either way
