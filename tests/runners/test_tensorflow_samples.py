"""What TensorFlow users may return as data sets, and that what is loaded depends on the seed, the epoch and the index
alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow import nested
from edt_runner.frameworks.tensorflow.trainable import TensorFlowSamples
from edt_runner.training import fingerprint

tf: Any = pytest.importorskip("tensorflow")


class Of:
    """A map-style data set by a function of the index."""

    def __init__(self, item: Callable[[int], Any], length: int = 6) -> None:
        self._item, self._length = item, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._item(index)


def samples(train: Any, test: Any = None, collate: Any = None, seed: int = 7) -> TensorFlowSamples:
    return TensorFlowSamples(train, test, seed, collate)


def same(ours: Any, theirs: Any) -> bool:
    return nested.equal(ours, theirs)


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_batch_has_the_form_of_its_samples_and_keeps_the_types_of_arrays() -> None:
    def item(i: int) -> Any:
        x = {"image": np.full((2, 2), i, np.uint8), "more": (i / 2, np.float64(i), tf.constant([i, i], tf.int32))}
        return x, [np.float16(i), {"deep": [[1.0, 2.0], [3.0, float(i)]]}], 0.5

    x, y, weight = samples(Of(item)).batch(True, 0, [3, 1])
    assert x["image"].dtype == np.uint8 and x["image"][:, 0, 0].tolist() == [3, 1]
    half, double, tensor = x["more"]
    assert (half.dtype, double.dtype, tensor.dtype) == (np.float32, np.float64, np.int32)
    assert half.tolist() == [1.5, 0.5] and tensor.tolist() == [[3, 3], [1, 1]]
    assert isinstance(y, list) and y[0].dtype == np.float16
    assert y[1]["deep"].dtype == np.float32 and y[1]["deep"].shape == (2, 2, 2)
    assert weight.tolist() == [0.5, 0.5]


def test_python_numbers_and_words_become_what_keras_makes_of_them() -> None:
    x, y = samples(Of(lambda i: ((i, i > 2, "ab" * i, b"\0x\0"), float(i)))).batch(True, 0, [1, 3])
    assert [leaf.dtype for leaf in x] == [np.int64, np.bool_, object, object]
    assert tf.constant(x[2]).numpy().tolist() == [b"ab", b"ababab"]
    assert x[3].tolist() == [b"\0x\0"] * 2
    assert y.dtype == np.float32
    x, y = samples(Of(lambda i: ([np.float64(i), 1.0], [np.int8(1), np.zeros((), np.int8)]))).batch(True, 0, [1])
    assert (x.dtype, y.dtype, y.shape) == (np.float64, np.int8, (1, 2)), "NumPy's own numbers stay what they are"


def test_floats_are_what_keras_backend_says() -> None:
    tf.keras.backend.set_floatx("float64")
    try:
        assert samples(Of(lambda i: (float(i), i))).batch(True, 0, [1])[0].dtype == np.float64
    finally:
        tf.keras.backend.set_floatx("float32")


def test_a_list_of_samples_is_a_data_set() -> None:
    ours = samples([(np.ones(2) * i, i, None) for i in range(5)], [(np.zeros(2), 0)] * 3)
    assert (ours.train_units, ours.test_units) == (5, 3)
    assert [part.shape for part in ours.batch(True, 0, [0, 4])] == [(2, 2), (2,)], "a weight of None is none"


def test_arrays_as_load_data_gives_them_are_a_data_set() -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    ours = samples(({"a": x, "b": tf.constant(x)}, y.tolist()), (x[:2], y[:2], np.ones(2)))
    assert (ours.train_units, ours.test_units, ours.units_per_batch(4)) == (6, 2, 4)
    got, labels = ours.batch(True, 3, [5, 0])
    assert got["a"].tolist() == got["b"].tolist() == [[10.0, 11.0], [0.0, 1.0]]
    assert labels.dtype == np.int64 and labels.tolist() == [5, 0]
    assert len(ours.batch(False, 0, [1])) == 3
    assert same(ours.probe(), ({"a": x[0], "b": x[0]}, y[0]))


def test_arrays_leave_the_generators_as_they_are() -> None:
    ours = samples((np.ones((6, 2)), np.ones(6)))
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    ours.batch(True, 0, [1, 2])
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index, union-attr]


def test_a_collate_function_gets_the_samples_as_they_are_and_its_batch_becomes_numpy() -> None:
    def padded(found: list[Any]) -> Any:
        longest = max(len(words) for words, _ in found)
        rows = [words + [0] * (longest - len(words)) for words, _ in found]
        return tf.constant(rows), [label + random.random() for _, label in found]

    ours = samples(Of(lambda i: ([7] * (i + 1), i)), collate=padded)
    x, y = ours.batch(True, 0, [0, 2])
    assert x.tolist() == [[7, 0, 0], [7, 7, 7]] and y.dtype == np.float32
    assert same(ours.batch(True, 0, [0, 2]), (x, y)), "under the first sample's seed"
    of_arrays = samples(
        (np.arange(6.0), np.arange(6)), collate=lambda found: tuple(np.array(part) for part in zip(*found, strict=True))
    )
    assert of_arrays.batch(True, 0, [2, 1])[1].tolist() == [2, 1]


def test_a_batch_to_warm_up_with_is_the_first_sample_over_and_over() -> None:
    for train in (Of(lambda i: (np.full(3, i + 1.0), i)), (np.ones((4, 3)), np.zeros(4))):
        x, _ = samples(train).probe_batch(3)
        assert x.tolist() == [[1.0] * 3] * 3


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "tf.data": (lambda: tf.data.Dataset.range(3), r"the train data set: element 0: got numpy.int64, takes \(x, y\)"),
    "generator": (lambda: (i for i in range(3)), "is generator, takes an object with __getitem__(?s:.*)samples = list"),
    "dict": (lambda: {"x": np.ones(3)}, "is dict, takes an object with __getitem__"),
    "one array": (lambda: np.ones((3, 2)), r"is one array, takes a tuple \(x, y\).*x_train"),
    "one tensor": (lambda: tf.ones((3, 2)), r"is one array, takes a tuple \(x, y\).*x_train"),
    "uneven": (lambda: (np.ones(3), np.ones(4)), "arrays of 3 and 4 rows"),
    "lists": (lambda: ([1, 2, 3], [0, 1, 0]), "a tuple of lists, takes a tuple of arrays"),
    "x alone": (lambda: Of(lambda i: np.ones(2)), r"sample 0: got numpy.ndarray, takes \(x, y\)"),
    "four": (lambda: Of(lambda i: (1, 2, 3, 4)), r"sample 0: got tuple of 4, takes \(x, y\)"),
    "an object": (lambda: Of(lambda i: ({"a": [object(), 1]}, 2)), r"sample 0: x\['a'\]\[0\]: got object, takes"),
    "ragged": (lambda: Of(lambda i: ([[1], [1, 2]], 2)), "sample 0: x: got lists of different lengths"),
}


@pytest.mark.parametrize("made, message", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_drawn_from_is_refused_in_a_sentence(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        samples(made())
    with pytest.raises(UsageError, match=message.replace("train", "test", 1).replace("x_test", "x_train")):
        samples([(1, 2)], made())


def test_samples_of_several_forms_in_one_batch_are_named() -> None:
    shapes = samples(Of(lambda i: ({"a": np.ones(2 + i % 2)}, i), 7))
    with pytest.raises(UsageError, match=r"x?\['a'\].*\(2,\), \(3,\) in one batch.*fn_batch_collate"):
        shapes.batch(True, 0, [0, 1])
    forms = samples(Of(lambda i: ({"a": 1} if i % 2 else {"b": 1}, i), 7))
    with pytest.raises(UsageError, match="got a dict of 'b' and a dict of 'a' in one data set"):
        forms.batch(True, 0, [0, 1])


def test_an_empty_data_set_is_empty_not_wrong() -> None:
    assert samples(Of(lambda i: (i, i), 0)).train_units == 0
    assert samples([(1, 2)], Of(lambda i: (i, i), 0)).test_units == 0


def test_the_first_sample_is_the_same_in_every_process_words_too() -> None:
    words = [samples([("".join(["wo", "rd"]), 1)]).probe() for _ in range(2)]
    assert words[0][0].item() is not words[1][0].item(), "as in two processes"
    assert fingerprint(words[0]) == fingerprint(words[1])
    assert fingerprint(words[0]) != fingerprint(samples([("work", 1)]).probe())


# ── seeds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def by_python(i: int) -> Any:
    return random.random(), np.random.rand(2)


def by_tensorflow(i: int) -> Any:
    x = tf.random.uniform((3,)) + tf.random.normal((3,))
    return x.numpy(), i


def by_tensorflow_sometimes(i: int) -> Any:
    return (tf.random.uniform((3,)) if i in (1, 4) else tf.zeros(3)).numpy(), np.random.rand()


def by_an_op_with_a_seed(i: int) -> Any:
    return tf.random.uniform((3,), seed=5).numpy(), i


DRAWN = [by_python, by_tensorflow, by_tensorflow_sometimes, by_an_op_with_a_seed]


@pytest.mark.parametrize("item", DRAWN)
def test_a_sample_depends_on_the_seed_the_epoch_and_its_index_alone(item: Callable[[int], Any]) -> None:
    ours, theirs = samples(Of(item)), samples(Of(item))
    whole = ours.batch(True, 2, [0, 1, 2, 3, 4])
    theirs.batch(True, 1, [5])
    tf.random.uniform((2,))
    part = theirs.batch(True, 2, [4, 1])
    assert same(part, nested.take(whole, [4, 1]))
    assert same(theirs.batch(True, 2, [4, 1]), part), "again, as after a crash"
    assert not same(theirs.batch(True, 3, [4, 1]), part)
    assert not same(samples(Of(item), seed=8).batch(True, 2, [4, 1]), part)
    assert ours.take_warnings() == []


def test_test_data_are_the_same_in_every_epoch() -> None:
    ours = samples([(1, 2)], Of(by_python))
    assert same(ours.batch(False, 0, [1]), ours.batch(False, 5, [1]))
    assert not same(ours.batch(False, 0, [1]), ours.batch(False, 0, [2]))


def test_what_tensorflow_draws_elsewhere_does_not_see_that_data_are_loaded() -> None:
    def drawn(load: Callable[[], Any]) -> Any:
        tf.random.set_seed(3)
        tf.random.uniform((2,))
        load()
        return tf.random.uniform((2,)).numpy().tolist()

    ours = samples(Of(by_tensorflow))
    assert drawn(lambda: ours.batch(True, 0, [1, 2])) == drawn(lambda: None)


def test_data_that_draw_nothing_from_tensorflow_leave_its_kernels_in_their_cache() -> None:
    context: Any = pytest.importorskip("tensorflow.python.eager.context")
    ours, cleared = samples(Of(by_python)), []
    clear = context.pywrap_tfe.TFE_ContextClearCaches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context.pywrap_tfe, "TFE_ContextClearCaches", lambda handle: cleared.append(clear(handle)))
        ours.batch(True, 0, [1, 2])
        assert not cleared
        samples(Of(by_tensorflow)).batch(True, 0, [1, 2])
        assert cleared


def test_data_with_a_generator_of_their_own_end_the_guarantee_by_name() -> None:
    generator = np.random.default_rng(3)
    ours = samples(Of(lambda i: (generator.random(), i)), Of(lambda i: (i, i)))
    [(what, why)] = ours.take_warnings()
    assert what == "the train data set" and "generator of its own" in why
    assert ours.take_warnings() == [], "once"


# ── Keras sequences ───────────────────────────────────────────────────────────────────────────────────────────────────
IMAGES = np.arange(10 * 4 * 4 * 3, dtype=np.float32).reshape(10, 4, 4, 3)
LABELS = np.arange(10)


def keras_3() -> Any:
    return tf.keras.preprocessing.image, tf.keras.utils.Sequence


def keras_2() -> Any:
    tf_keras = pytest.importorskip("tf_keras")
    return tf_keras.preprocessing.image, tf_keras.utils.Sequence


KERAS = pytest.mark.parametrize("keras", [keras_2, keras_3])
pytestmark = pytest.mark.filterwarnings("ignore:Please import .affine_transform.:DeprecationWarning")  # by Keras 2


def flow(keras: Callable[[], Any], **more: Any) -> Any:
    generator = keras()[0].ImageDataGenerator(horizontal_flip=True, width_shift_range=0.5, rotation_range=90)
    return generator.flow(IMAGES, LABELS, **{"batch_size": 4, **more})


@KERAS
@pytest.mark.parametrize("seed", [None, 3])
def test_an_image_iterator_deals_its_rows_anew_each_epoch_and_augments_by_seed_epoch_and_index(
    keras: Callable[[], Any], seed: int | None
) -> None:
    ours, theirs = samples(flow(keras, seed=seed)), samples(flow(keras, seed=seed))
    assert (ours.train_units, ours.units_per_batch(4)) == (3, 1)
    epochs = [ours.batch(True, epoch, [0, 1, 2]) for epoch in range(3)]
    for _, labels in epochs:
        assert sorted(labels.tolist()) == LABELS.tolist(), "every row once"
        assert len(labels) == 10, "the last unit has two rows"
    assert len({tuple(labels.tolist()) for _, labels in epochs}) == 3
    x, y = theirs.batch(True, 2, [1])  # whatever was loaded before
    assert same((x, y), nested.take(epochs[2], slice(4, 8)))
    assert x.shape == (4, 4, 4, 3)
    assert not np.array_equal(x, IMAGES[y]), "augmented"
    assert ours.take_warnings() == [] and ours.notes == []


@KERAS
@pytest.mark.parametrize("own", [1, 4, 7, 32])
def test_the_batch_size_of_train_counts_whatever_an_image_iterators_own_is(keras: Callable[[], Any], own: int) -> None:
    ours = samples(flow(keras, batch_size=own), flow(keras, batch_size=5))
    theirs = samples(flow(keras, batch_size=3), flow(keras, batch_size=3))
    for each in (ours, theirs):
        assert each.units_per_batch(3) == 1
        assert (each.train_units, each.test_units) == (4, 4), "of ten rows each"
    assert ours.notes == []
    for of_train in (True, False):
        for index in (3, 0, 2):
            assert same(ours.batch(of_train, 1, [index]), theirs.batch(of_train, 1, [index]))
    assert len(ours.batch(True, 1, [0])[1]) == 3


@KERAS
def test_a_test_set_of_arrays_follows_the_cut_of_an_image_iterator(keras: Callable[[], Any]) -> None:
    ours = samples(flow(keras), (IMAGES, LABELS))
    assert (ours.units_per_batch(2), ours.train_units, ours.test_units) == (1, 5, 5)
    assert ours.batch(False, 0, [1])[1].tolist() == [2, 3]


@KERAS
def test_an_iterator_that_does_not_shuffle_keeps_its_rows_together(keras: Callable[[], Any]) -> None:
    ours = samples(flow(keras, shuffle=False), flow(keras))
    assert ours.batch(True, 5, [1])[1].tolist() == [4, 5, 6, 7]
    assert ours.batch(False, 0, [2])[1].tolist() == [8, 9], "nor does a test set's, which has no need to"


@KERAS
def test_a_folder_of_images_sorted_by_class_is_mixed(keras: Callable[[], Any], tmp_path: Any) -> None:
    from PIL import Image

    for number in range(12):
        folder = tmp_path / f"class{number // 6}"
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / f"{number:02}.png")
    generator = keras()[0].ImageDataGenerator()
    made = generator.flow_from_directory(tmp_path, target_size=(4, 4), batch_size=6, class_mode="sparse")
    x, y = samples(made).batch(True, 0, [0])
    assert x.shape == (6, 4, 4, 3) and 0 < y.sum() < 6


@KERAS
def test_images_and_masks_of_one_seed_stay_a_pair(keras: Callable[[], Any]) -> None:
    images, sequence = keras()

    class Pair(sequence):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            flip = images.ImageDataGenerator(horizontal_flip=True, vertical_flip=True)
            self.parts = [flip.flow(IMAGES, batch_size=4, seed=5), flip.flow(-IMAGES, batch_size=4, seed=5)]

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return tuple(part[index] for part in self.parts)

    ours, theirs = samples(Pair()), samples(Pair())
    for epoch in range(3):
        x, y = ours.batch(True, epoch, [0, 1, 2])
        assert np.array_equal(x, -y)
        assert same(theirs.batch(True, epoch, [2]), nested.take((x, y), slice(8, 10)))


def shuffling(keras: Callable[[], Any], **more: Any) -> Any:
    class Shuffling(keras()[1]):  # type: ignore[misc]
        """Shuffles in place, as examples on the web do."""

        def __init__(self) -> None:
            super().__init__(**more)
            self.order, self.epoch = np.arange(10), 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            rows = self.order[4 * index : 4 * index + 4]
            return IMAGES[rows] + np.random.rand(), {"label": rows, "epoch": [self.epoch] * len(rows)}

        def on_epoch_end(self) -> None:
            self.epoch += 1
            np.random.shuffle(self.order)

    return Shuffling()


@KERAS
def test_a_sequence_is_told_of_epochs_so_that_any_process_has_it_in_the_same_state(keras: Callable[[], Any]) -> None:
    ours, theirs = samples(shuffling(keras)), samples(shuffling(keras))
    epochs = [ours.batch(True, epoch, [0, 1, 2]) for epoch in range(4)]
    assert [y["epoch"][0] for _, y in epochs] == [0, 1, 2, 3]
    orders = [y["label"].tolist() for _, y in epochs]
    assert orders[0] == LABELS.tolist() and len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == LABELS.tolist() for order in orders)
    for epoch in (3, 1, 2):  # a joining engine, and one who goes back
        assert same(theirs.batch(True, epoch, [1]), nested.take(epochs[epoch], slice(4, 8)))
    assert ours.notes == ours.take_warnings() == []


def test_a_batch_stays_what_it_was_when_its_sequence_is_shuffled_in_place() -> None:
    class Views(tf.keras.utils.PyDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.x = np.arange(12)

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return self.x[4 * index : 4 * index + 4], self.x[4 * index : 4 * index + 4]

        def on_epoch_end(self) -> None:
            np.random.shuffle(self.x)

    ours = samples(Views())
    x, _ = ours.batch(True, 0, [1])
    ours.batch(True, 1, [0])
    assert x.tolist() == [4, 5, 6, 7]


@KERAS
def test_one_object_may_be_both_training_and_test_set(keras: Callable[[], Any]) -> None:
    for both, label in ((shuffling(keras), lambda y: y["label"]), (flow(keras), lambda y: y)):
        ours = samples(both, both)
        ours.batch(True, 3, [0])
        assert label(ours.batch(False, 0, [0])[1]).tolist() == [0, 1, 2, 3]


@KERAS
def test_a_sequence_that_cannot_be_told_is_used_as_it_is_and_says_so(keras: Callable[[], Any]) -> None:
    sequence = shuffling(keras)
    sequence.file = open(__file__)  # noqa: SIM115, PTH123
    try:
        ours = samples(sequence)
        assert ours.batch(True, 3, [0])[1]["label"].tolist() == [0, 1, 2, 3]
        [note] = ours.notes
        assert "on_epoch_end of" in note and "is not called, since it cannot be copied" in note
        assert ours.take_warnings() == [], "it is exact all the same"
    finally:
        sequence.file.close()
    big = shuffling(keras)
    big.image = np.broadcast_to(np.float32(0), (1 << 27,))
    assert "more than 256 MB" in samples(big).notes[0]


def test_items_larger_than_the_batch_size_are_used_whole_and_that_is_said() -> None:
    ours = samples(shuffling(keras_3))
    assert ours.units_per_batch(3) == 1
    assert "batch_size is 3, but an item of the train data set has 4 rows" in ours.notes[0]


def test_processes_of_a_sequence_are_not_used_and_that_is_said() -> None:
    ours = samples(shuffling(keras_3, workers=4))
    assert "num_dataloader_threads says how many processes load" in ours.notes[0]


def test_a_sequence_without_a_sample_form_or_an_end_is_refused() -> None:
    class Endless(tf.keras.utils.PyDataset):  # type: ignore[misc]
        num_batches = None

        def __getitem__(self, index: int) -> Any:
            return np.ones((2, 2)), np.ones(2)

    with pytest.raises(UsageError, match="Endless without an end, takes one whose num_batches is known"):
        samples(Endless())
    Endless.num_batches = 4
    assert samples(Endless()).train_units == 4
    with pytest.raises(UsageError, match=r"item 0: got numpy.ndarray, takes \(x, y\)"):
        samples(keras_3()[0].ImageDataGenerator().flow(IMAGES, batch_size=4))
    with pytest.raises(
        UsageError, match="fn_batch_collate: got a function, takes None: the train data set gives whole"
    ):
        samples(flow(keras_3), collate=list)


def test_a_test_set_is_cut_into_units_of_the_training_sets_size() -> None:
    def all_of(ours: TensorFlowSamples) -> list[int]:
        size = ours.units_per_batch(4)
        parts = [range(n, min(n + size, ours.test_units)) for n in range(0, ours.test_units, size)]
        batches = [ours.batch(False, 0, list(part))[1].tolist() for part in parts]
        assert max(map(len, batches)) == 4, "batch_size"
        return [label for batch in batches for label in batch]

    def ones() -> Any:
        return flow(keras_3, batch_size=1)

    samples_, arrays = Of(lambda i: (IMAGES[i], i), 10), (IMAGES, LABELS)
    for test in (samples_, arrays, ones(), flow(keras_3)):
        assert all_of(samples(flow(keras_3), test)) == LABELS.tolist()
    for train in (samples_, arrays, ones()):
        assert all_of(samples(train, flow(keras_3))) == LABELS.tolist()
    mixed = samples(arrays, flow(keras_3))
    assert mixed.batch(False, 0, [9, 3, 4, 0])[1].tolist() == [9, 3, 4, 0]
    x, _ = mixed.batch(False, 0, [9])
    assert same(x, mixed.batch(False, 3, [8, 9])[0][1:]), "augmented, yet always the same"
