"""How sure a median is: a target of a benchmark holds when the 95 % bound of the median is within it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb

CONFIDENCE = 0.95
FEWEST = 5
"""Values that such a bound needs at least."""


def of_median(values: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """Return an upper bound of the median of the distribution that the values come from.

    The bound is one of the values and holds for any distribution. The k-th smallest of n values is above the median
    unless k or more of them are below it, and each is below it with probability 1/2.

    Args:
        values: independent measurements of one thing, in any order.
        confidence: the probability with which the bound holds.

    Raises:
        ValueError: the values are too few for this confidence.
    """
    holds = 0.0
    for below, value in enumerate(sorted(values)):
        holds += comb(len(values), below) / 2 ** len(values)
        if holds >= confidence:
            return value
    raise ValueError(f"{len(values)} values are too few for a bound with a confidence of {confidence}")


def base(again: Sequence[float]) -> float:
    """Return the ratio that counts as equally fast: the median of an A/A row, at least 1.

    Args:
        again: ratios of a peer to a second one that does the same.
    """
    return max(1.0, statistics.median(again))
