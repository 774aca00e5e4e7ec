"""Numbers by the chunk, for statements that name them one by one. Room: scheduler, store. Pure.

A statement holds so many values at most: PostgreSQL's protocol 65,535, SQLite 32,766. How many rows somebody asks for
is not known here, so whoever writes ``in_`` over a list takes it chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MOST_NAMED = 5000
"""So many values one statement names: few enough for every database beside whatever else it holds."""


def chunks(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Each number once, in order, at most MOST_NAMED at a time; nothing for no number."""
    wanted = sorted(set(numbers))
    for start in range(0, len(wanted), MOST_NAMED):
        yield wanted[start : start + MOST_NAMED]
