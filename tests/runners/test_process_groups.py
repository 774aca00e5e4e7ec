"""A group that is closed under whoever works with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from edt_runner.comm.process_groups import GlooPlane
from edt_runner.errors import PeerLost
from edt_runner.splits import plan_of


@pytest.fixture
def plane() -> Iterator[GlooPlane]:
    plane = GlooPlane("127.0.0.1", torch.float32, "lo")
    yield plane
    plane.close()


@pytest.mark.parametrize("exact", [True, False])
def test_a_closed_group_loses_its_peers_and_never_passes_a_part_for_the_whole(plane: GlooPlane, exact: bool) -> None:
    group = plane.solo()
    plan = plan_of(1, (range(1),))
    sums = group.begin(4, exact=exact)
    group.sum_own(plan, sums, lambda index, local: local.fill_(1.0))
    group.close()
    with pytest.raises(PeerLost):
        group.reduce(plan, sums, lambda: 0)


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_summed_outlives_its_group(plane: GlooPlane, exact: bool) -> None:
    """Exact: only what is missing is filled. Fast: all of it, since a sum has no parts."""
    plan, filled = plan_of(2, (range(2),)), []

    def fill(index: int, local: torch.Tensor) -> None:
        filled.append(index)
        local.fill_(index + 1.0)

    first = plane.solo()
    sums = first.begin(4, exact=exact)
    first.sum_own(plan_of(2, ((0,),)), sums, fill) if exact else first.sum_own(plan, sums, fill)
    filled.clear()
    second = plane.solo()
    again = second.begin(4, exact=exact, previous=sums)
    second.sum_own(plan, again, fill)
    reduced, _ = second.reduce(plan, again, lambda: 0)
    assert filled == ([1] if exact else [0, 1])
    assert reduced[:4].tolist() == [3.0] * 4


def test_a_result_stays_whole_until_there_is_the_next(plane: GlooPlane) -> None:
    """A peer that was held up before it applied it may ask for it while the next step is summed."""
    group, plan = plane.solo(), plan_of(4, (range(4),))

    def summed(number: float) -> torch.Tensor:
        sums = group.begin(4, exact=True)
        group.sum_own(plan, sums, lambda index, local: local.fill_(number))
        for reduced in earlier:
            assert reduced.tolist() == [4.0 * (number - 1)] * 4
        return group.reduce(plan, sums, lambda: 0)[0]

    earlier: list[torch.Tensor] = []
    for number in (1.0, 2.0, 3.0):
        earlier = [summed(number)]
        assert earlier[0].tolist() == [4 * number] * 4
