"""What a loop's body asks for comes out of the sum of all micro-batches as each of them has written it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edt_runner.errors import UsageError
from edt_runner.frameworks.flat import squared_norm
from edt_runner.launch.user_loop_asks import MOST_CLIPS, MOST_MOVES, AskNumbers, Asks, Clip, ClipKind

OPTIMIZERS, OBJECTS, PARAMETERS = 3, 4, 7
some = st.sets(st.integers(0, PARAMETERS - 1), min_size=1).map(lambda found: tuple(sorted(found)))
clips = st.builds(Clip, st.sampled_from(ClipKind), st.floats(1e-300, 1e300), some)
asks = st.builds(
    Asks,
    st.sets(st.integers(0, OPTIMIZERS - 1)).map(lambda found: tuple(sorted(found))),
    st.booleans(),
    st.dictionaries(st.integers(0, OBJECTS - 1), st.integers(1, MOST_MOVES)).map(
        lambda found: tuple(sorted(found.items()))
    ),
    st.lists(clips, max_size=MOST_CLIPS).map(tuple),
)


def numbers() -> AskNumbers:
    return AskNumbers(OPTIMIZERS, OBJECTS, PARAMETERS, "loader")


def written(what: Asks, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    coding = numbers()
    place = torch.full((coding.size,), torch.nan, dtype=dtype)
    coding.write(what, place)
    return place


@given(asks, st.integers(1, 60_000), st.sampled_from([torch.float32, torch.float64]))
def test_the_sum_of_all_micro_batches_says_what_each_has_asked_for(
    what: Asks, micro_batches: int, dtype: torch.dtype
) -> None:
    assert numbers().read(written(what, dtype) * micro_batches, micro_batches) == what


@given(asks, asks)
def test_micro_batches_that_differ_are_noticed_by_the_sum_or_by_each_of_them(one: Asks, other: Asks) -> None:
    """If the mean is whole numbers, it is what neither has asked for, and each engine knows what it has asked for."""
    try:
        found = numbers().read(written(one) + written(other), 2)
    except UsageError:
        assert one != other
    else:
        assert one == other == found or found not in (one, other)


def test_steps_without_samples_ask_for_nothing() -> None:
    assert numbers().read(torch.zeros(numbers().size), 0) == Asks()


@pytest.mark.parametrize("kind", ClipKind)
@pytest.mark.parametrize("parameters", [(0, 1, 2), (0, 2)])
def test_a_clip_leaves_other_gradients_and_its_input_as_they_were(kind: ClipKind, parameters: tuple[int, ...]) -> None:
    gradients = torch.arange(1.0, 11.0)
    sizes = [2, 5, 3]
    clipped, norm = Clip(kind, 0.5, parameters).clipped(gradients, sizes)
    assert torch.equal(gradients, torch.arange(1.0, 11.0))
    parts, before = torch.split(clipped, sizes), torch.split(gradients, sizes)
    own = torch.cat([parts[index] for index in parameters])
    if kind is ClipKind.NORM:
        assert squared_norm(own) == pytest.approx(0.25, rel=1e-5)
        assert norm == pytest.approx(float(torch.cat([before[index] for index in parameters]).norm()))
    else:
        assert float(own.abs().max()) == pytest.approx(0.5, rel=1e-5)
    assert all(torch.equal(parts[index], before[index]) for index in {0, 1, 2} - set(parameters))
