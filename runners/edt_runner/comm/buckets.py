"""Buckets: the pieces in which a step's flat vector is reduced, as DistributedDataParallel's.

A backward pass makes the gradients of the last parameters first. So the buckets go from the end of the gradients to
their beginning, and what follows the gradients (buffers, sums of loss and metrics) is the last bucket. A bucket is sent
as soon as all of its numbers are there, while the backward pass goes on with the others. Where the vector is cut does
not change any bit, because every number is added on its own.
"""

from __future__ import annotations

from collections.abc import Sequence

FIRST_BYTES, MOST_BYTES = 1 << 20, 25 << 20
"""Bytes of the first bucket, and of the others (DistributedDataParallel's defaults). The first is small, so that
something is sent early. A bucket ends with the parameter that fills it."""
SINGLE_BYTES = 8 << 20
"""With fewer bytes of gradients there is one bucket, sent after the backward pass. (Measured with 1.1 million numbers,
two engines and two cores, beside DistributedDataParallel: a step takes 1.04 times as long, with buckets 1.10 times.)"""

Bucket = tuple[int, int]
"""(start, end): the numbers of the flat vector from ``start`` to ``end`` - 1."""


def buckets_of(parameters: Sequence[int], length: int, item_bytes: int) -> tuple[Bucket, ...]:
    """Cut a flat vector into buckets, in the order in which they are reduced.

    Args:
        parameters: how many numbers each parameter has. Their gradients are the beginning of the vector.
        length: how many numbers the vector has.
        item_bytes: bytes of a number.
    """
    gradients = sum(parameters)
    if gradients * item_bytes <= SINGLE_BYTES:
        return ((0, length),)
    found: list[Bucket] = []
    start = end = gradients
    for size in reversed(parameters):
        start -= size
        if (end - start) * item_bytes >= (MOST_BYTES if found else FIRST_BYTES):
            found.append((start, end))
            end = start
    if start < end:
        found.append((start, end))
    return (*found, (gradients, length)) if gradients < length else tuple(found)


def shard_of(bucket: Bucket, rank: int, size: int) -> Bucket:
    """Return the part of a bucket that rank ``rank`` of ``size`` sums. It may be empty."""
    start, end = bucket
    each = -(-(end - start) // size)
    return min(end, start + rank * each), min(end, start + (rank + 1) * each)


class Arrivals:
    """Which buckets of a vector are complete, while its numbers arrive in any order.

    Args:
        buckets: the buckets, in the order in which they are reduced. Together they are the whole vector.
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._buckets = buckets
        self._missing = [end - start for start, end in buckets]
        self._next = 0
        """The first bucket that ``add`` has not returned."""

    def add(self, start: int, end: int) -> range:
        """Note that the numbers from ``start`` to ``end`` - 1 have arrived. Each number arrives once.

        Returns:
            The numbers of the buckets that are complete now and whose predecessors are, too.
        """
        for number, (low, high) in enumerate(self._buckets):
            overlap = min(end, high) - max(start, low)
            if overlap > 0:
                self._missing[number] -= overlap
        first = self._next
        while self._next < len(self._buckets) and not self._missing[self._next]:
            self._next += 1
        return range(first, self._next)
