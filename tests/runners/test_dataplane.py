"""A group that is closed under whoever works with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from edt_runner.dataplane import GlooPlane
from edt_runner.engine.tree import plan_of
from edt_runner.errors import PeerLost


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
    group.gather(plan, sums, lambda worker, leaf: leaf.fill_(1.0))
    group.close()
    with pytest.raises(PeerLost):
        group.combine(plan, sums, lambda: 0)


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_summed_outlives_its_group(plane: GlooPlane, exact: bool) -> None:
    """Exact: only what is missing is filled. Fast: all of it, since a sum has no parts."""
    plan, filled = plan_of(2, (range(2),)), []

    def fill(worker: int, leaf: torch.Tensor) -> None:
        filled.append(worker)
        leaf.fill_(worker + 1.0)

    first = plane.solo()
    sums = first.begin(4, exact=exact)
    first.gather(plan_of(2, ((0,),)), sums, fill) if exact else first.gather(plan, sums, fill)
    filled.clear()
    second = plane.solo()
    again = second.begin(4, exact=exact, kept=sums)
    second.gather(plan, again, fill)
    vector, _ = second.combine(plan, again, lambda: 0)
    assert filled == ([1] if exact else [0, 1])
    assert vector[:4].tolist() == [3.0] * 4


def test_a_result_stays_whole_until_there_is_the_next(plane: GlooPlane) -> None:
    """A peer that was held up before it applied it may ask for it while the next step is summed."""
    group, plan = plane.solo(), plan_of(4, (range(4),))

    def summed(number: float) -> torch.Tensor:
        sums = group.begin(4, exact=True)
        group.gather(plan, sums, lambda worker, leaf: leaf.fill_(number))
        for vector in earlier:
            assert vector.tolist() == [4.0 * (number - 1)] * 4
        return group.combine(plan, sums, lambda: 0)[0]

    earlier: list[torch.Tensor] = []
    for number in (1.0, 2.0, 3.0):
        earlier = [summed(number)]
        assert earlier[0].tolist() == [4 * number] * 4
