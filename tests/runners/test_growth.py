"""What the coordinator sends and reads because of one change does not grow faster than n log n."""

from __future__ import annotations

import math
from collections.abc import Callable

from support.fleet import Fleet

ENGINES = 256
MESSAGES, BYTES = 2, 400
"""The most for n log2 n of n engines. Whole memberships to every engine would be 1,100 bytes and more."""


def test_messages_and_bytes_of_a_change_grow_no_faster_than_n_log_n() -> None:
    fleet = Fleet(ENGINES)
    changes: list[tuple[str, Callable[[], None]]] = [
        ("a leave", fleet.leave),
        ("a join", fleet.join),
        ("a death", fleet.die),
        ("a death in a step", lambda: fleet.die(summed=0.5, behind=0.3)),
        ("the deaths of a node's engines", lambda: fleet.die(8)),
        ("a regroup without a death", fleet.hang),
        ("another coordinator", fleet.take_over),
        ("a join after that", fleet.join),
    ]
    for what, change in changes:
        counts = fleet.measure(change)
        growth = len(fleet.names) * math.log2(len(fleet.names))
        assert counts.messages <= MESSAGES * growth, what
        assert counts.volume <= BYTES * growth, what


def test_many_engines_that_join_at_once_cost_each_of_them_one_whole_membership() -> None:
    counts = Fleet(ENGINES).counts
    growth = ENGINES * math.log2(ENGINES)
    assert counts.messages <= MESSAGES * growth
    assert counts.volume <= ENGINES * BYTES * math.log2(ENGINES) * 4
