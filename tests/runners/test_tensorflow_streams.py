"""Data sets of ``tf.data``: which are read, as what, and which are refused with what makes them map-style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow import streams
from edt_runner.frameworks.tensorflow.trainable import TensorFlowSamples

tf: Any = pytest.importorskip("tensorflow")

X = np.arange(40, dtype=np.float32).reshape(10, 4)
Y = np.arange(10)


def stream() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def samples(dataset: Any, rank: int | None = 2) -> TensorFlowSamples:
    return TensorFlowSamples(dataset, None, 7, None, rank)


@pytest.mark.parametrize(
    "dataset",
    [
        stream,
        lambda: stream().batch(4),
        lambda: stream().map(lambda x, y: (x, y)).cache().batch(3).map(lambda x, y: (x, y)),
    ],
    ids=["samples", "batches", "a chain"],
)
@pytest.mark.parametrize("rank", [2, None], ids=["built", "not built"])
def test_samples_and_batches_are_the_same_samples(dataset: Callable[[], Any], rank: int | None) -> None:
    found = samples(dataset(), rank)
    assert found.train_units == 10
    x, y = found.batch(True, 0, [7, 2])
    np.testing.assert_array_equal(x, X[[7, 2]])
    np.testing.assert_array_equal(y, [7, 2])


def test_a_user_is_told_what_was_read_and_that_batches_were_taken_apart() -> None:
    (note,) = samples(stream().batch(4)).notes
    assert "3 elements (10 samples, 0.0 MiB) were read into memory" in note
    assert "3 batches were taken apart: batch_size of train() makes others" in note
    assert "taken apart" not in samples(stream()).notes[0]


def test_several_inputs_and_sample_weights_keep_their_form() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(({"a": X, "b": X + 1}, Y, Y / 10)).batch(4)
    x, _, weights = samples(dataset).batch(True, 0, [9])
    np.testing.assert_array_equal(x["b"], X[[9]] + 1)
    np.testing.assert_allclose(weights, [0.9])


def test_samples_of_different_lengths_are_for_a_collate_function() -> None:
    def pad(found: list[Any]) -> Any:
        longest = max(len(x) for x, _ in found)
        return np.stack([np.pad(x, (0, longest - len(x))) for x, _ in found]), np.array([y for _, y in found])

    ragged = tf.data.Dataset.range(1, 5).map(lambda n: (tf.range(n), n))
    for dataset in (ragged, ragged.padded_batch(2)):
        found = TensorFlowSamples(dataset, None, 7, pad, 2)
        assert found.train_units == 4
        x, y = found.batch(True, 0, [0, 3])
        assert (x.shape, y.tolist()) == ((2, 4), [1, 4])


def test_another_order_in_another_process_is_found() -> None:
    """By what processes compare with each other: the first sample alone may be the same."""
    swapped = np.r_[0, 2, 1, 3:10]
    other = tf.data.Dataset.from_tensor_slices((X[swapped], Y[swapped]))
    ours, again, theirs = (samples(dataset).probe() for dataset in (stream(), stream(), other))
    assert ours[1] == again[1] != theirs[1]


def test_elements_that_may_be_samples_or_batches_are_asked_about() -> None:
    square = tf.data.Dataset.from_tensor_slices((X[:, :1], X[:, 1:2])).batch(5, drop_remainder=True)
    with pytest.raises(UsageError, match=r"may be samples or batches \(all arrays have 5 rows\), takes .*unbatch\(\)"):
        samples(square, None)
    assert samples(square, 2).train_units == 10


def test_what_cannot_be_read_is_refused_with_the_lines_that_help(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "class Samples:\n        def __len__"
    with pytest.raises(UsageError, match="without an end, takes one of known length") as caught:
        samples(stream().repeat())
    assert lines in str(caught.value)
    with pytest.raises(UsageError, match=r"of unknown length.*assert_cardinality") as caught:
        samples(stream().filter(lambda x, y: y > 2))
    assert lines in str(caught.value)
    monkeypatch.setattr(streams, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="of more than 0 MiB") as caught:
        samples(stream())
    assert lines in str(caught.value)


def test_a_generator_is_refused_with_the_lines_that_help() -> None:
    with pytest.raises(UsageError, match="the train data set is generator, takes an object with __getitem__") as caught:
        samples(pair for pair in zip(X, Y, strict=True))
    assert "samples = list(stream)" in str(caught.value)


def test_a_known_length_may_be_told() -> None:
    dataset = stream().filter(lambda x, y: y > 2).apply(tf.data.experimental.assert_cardinality(7))
    assert samples(dataset).train_units == 7
