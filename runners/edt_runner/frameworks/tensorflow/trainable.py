"""A Keras user's model, compiled with its loss, optimizer and metrics, and the user's data sets.

A data set is one of
* an object with ``__getitem__`` and ``__len__`` (as in EDTTensorFlowDataset): item i is sample i, (x, y) or
  (x, y, sample_weight), each a number, an array, a tensor, or dicts and tuples of those;
* arrays, as from Keras's ``load_data``: a *tuple* of x, y and perhaps sample weights, each an array or a dict or list
  of arrays, with one row for each sample (a tuple of tuples, or any list, is a sequence of samples instead);
* a Keras sequence (``sequences``), whose items are batches;
* a ``tf.data.Dataset`` with an end that fits in memory (``streams``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import tensorflow as tf

from edt_runner.callbacks.hooks import UserCallback
from edt_runner.errors import UsageError
from edt_runner.frameworks import Framework
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.tensorflow import FRAMEWORK, nested, precision, schedules, streams
from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, inner_optimizer
from edt_runner.frameworks.tensorflow.nested import Nested
from edt_runner.frameworks.tensorflow.own_steps import overrides
from edt_runner.frameworks.tensorflow.sequences import Batches, is_sequence
from edt_runner.frameworks.tensorflow.sources import TEST, Arrays, ByRow, Grouped, Seeding, Singles, Source
from edt_runner.frameworks.tensorflow.variables import role_of
from edt_runner.frameworks.trainable import Collate, EngineAdapter, Samples

_PLAIN = StepOptions()


@dataclass(frozen=True)
class KerasTrainable:
    """A user's Keras training as a ``Trainable``, which ``fabric_model`` has checked."""

    keras: KerasVersion
    model: Any
    """The compiled model. It may not be built yet; then it has no parameters until there is an adapter."""
    has_loss: bool = True
    """Whether the model was compiled with a loss. Without one, it has a train_step of its own."""
    sums: bool = False
    """Whether the loss of a micro-batch is a sum over its samples, and not a mean."""
    tokens: Callable[[Any], float] | None = None
    """A function batch -> number of tokens, if the loss of a step is the mean over them."""
    framework: ClassVar[Framework] = FRAMEWORK

    @property
    def optimizer(self) -> Any:
        return self.model.optimizer

    def parts(self) -> list[Any]:
        variables = [*self.model.variables, *self.keras.optimizer_variables(self.optimizer)]
        return [self.model, self.optimizer, *_layers(self.model), *variables, *map(self.keras.value, variables)]

    def parameters(self) -> list[list[Any]]:
        named = ((role_of(self.keras, weight), self.keras.value(weight)) for weight in self.model.weights)
        return [[role, variable.dtype.name, variable.shape.as_list()] for role, variable in named]

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        ranks = {len(each.shape) for each in tf.nest.flatten(getattr(self.model, "inputs", None) or [])}
        return TensorFlowSamples(train, test, seed, collate, input_rank=ranks.pop() if len(ranks) == 1 else None)

    def adapter(self, samples: Samples, *, on_device: bool, options: StepOptions = _PLAIN) -> TensorFlowAdapter:
        """Wrap the model. The model is where TensorFlow has put it: on the GPU, if this process sees one."""
        if samples.test_units and not self.has_loss and not overrides(self.keras, self.model, "test_step"):
            raise UsageError(
                f"loss_function: got None, takes a loss, since {type(self.model).__name__} has no test_step of its own "
                "that could validate the test data set; or give None as that data set"
            )
        probe = samples.probe_batch(2)
        return TensorFlowAdapter(
            self.keras,
            self.model,
            probe,
            by_rows=nested.lengths_of(probe)[0] > 2,  # units are whole batches
            sums=self.sums,
            tokens=self.tokens,
            validates=bool(samples.test_units),
            options=options,
        )

    def checked_options(self, options: StepOptions) -> StepOptions:
        """Check the options. A schedule becomes the optimizer's learning rate.

        Raises:
            UsageError: Keras or the model cannot do what they ask.
        """
        precision.check_precision(self.keras, self.model, _layers(self.model), options.precision)
        optimizer = inner_optimizer(self.optimizer)
        precision.check_clipping(optimizer, options)
        return replace(options, lr_scheduler=schedules.resolved(self.keras, optimizer, options))

    def epoch_callbacks(self, options: StepOptions) -> Sequence[UserCallback]:
        return schedules.epoch_callbacks(options.lr_scheduler)

    def exporter(self, adapter: EngineAdapter) -> None:
        """None: Keras can only write the living model."""

    def finish(self) -> None:
        self.keras.finish(self.model)


def weight_of(batch: Nested) -> float:
    """The sum of a batch's sample weights. Without these, the number of numbers in its (first) targets."""
    _, *rest = batch
    if len(rest) == 2:
        return float(sum(np.sum(leaf, dtype=np.float64) for leaf in tf.nest.flatten(rest[1])))
    return float(np.size(tf.nest.flatten(rest[0])[0]))


def _layers(model: Any) -> Iterator[Any]:
    """All layers of a model, including those inside other layers."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)


class TensorFlowSamples(Samples):
    """``Samples`` from Keras users' data sets. Batches are nested NumPy arrays: (x, y) or (x, y, sample weight).

    What is loaded depends on (seed, epoch, index). The exactness guarantee ends if a data set returns another value
    when the same sample is loaded again; this is tested here, on a few samples.

    Args:
        train, test: data sets in one of the forms that this module takes; test may be None.
        seed: the training's seed.
        collate: list of samples -> batch; None: arrays are stacked leaf by leaf.
        input_rank: number of dimensions of a batch of each of the model's inputs; None: not known.

    Raises:
        UsageError: samples cannot be loaded from a data set.
    """

    def __init__(
        self, train: Any, test: Any, seed: int, collate: Collate | None, input_rank: int | None = None
    ) -> None:
        self._seedings: list[Seeding] = []
        self._input_rank = input_rank
        self._digests: dict[str, str] = {}
        """Checksums, by name, of data sets that were read as streams."""
        self._seed, self._collate, self._floats = seed, collate, str(tf.keras.backend.floatx())
        self._warnings: list[tuple[str, str]] = []
        self.notes: list[str] = []
        """Sentences for the user about how the data are used."""
        self._train = self._source("train", train)
        self.train_units = self._train.units
        self._given_test = self._source("test", test) if test is not None and self.train_units else None
        self._cut_test()

    def _cut_test(self) -> None:
        self._test = self._given_test
        if self._test is not None and self._test.units:
            self._test = _cut_as(self._train, self._test)
        self.test_units = self._test.units if self._test is not None else 0

    def units_per_batch(self, batch_size: int) -> int:
        """Units of one micro-batch. A unit of a Keras sequence counts as many samples as its first item has rows.

        The items of image iterators are cut to ``batch_size`` rows, which changes ``train_units`` and ``test_units``.
        """
        if self.train_units and isinstance(self._train, Batches) and self._train.cut(batch_size):
            if isinstance(self._given_test, Batches):
                self._given_test.cut(batch_size)
            self.train_units = self._train.units
            self._cut_test()
        rows = self._train.rows() if self.train_units else 1
        if rows > batch_size:
            self.notes.append(
                f"train: batch_size is {batch_size}, but an item of the train data set has {rows} rows; "
                "a micro-batch is one item"
            )
        return max(1, batch_size // rows)

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Nested:
        if of_train:
            return self._train.batch(epoch, indices)
        assert self._test is not None
        return self._test.batch(TEST, indices)

    def probe(self) -> Nested:
        """The first unit. With it come checksums of what was read from streams, whose order may differ in processes."""
        return [self._train.probe(), self._digests] if self._digests else self._train.probe()

    def probe_batch(self, units: int) -> Nested:
        return self._train.first(units)

    def enter_loader(self) -> None:
        """From now on this process runs no op of TensorFlow."""
        for seeding in self._seedings:
            seeding.with_ops = False
        refuse_ops()

    def take_warnings(self) -> list[tuple[str, str]]:
        taken, self._warnings = self._warnings, []
        return taken

    def _source(self, name: str, dataset: Any) -> Source:
        where = f"datasets_function: the {name} data set"
        if isinstance(dataset, tf.data.Dataset):
            with Seeding(self._seed).loading():
                read = streams.read(dataset, self._floats, where, self._input_rank)
            dataset, self._digests[name] = read.samples, read.checksum
            self.notes.append(read.note)
        arrays = _arrays(dataset, self._floats, where)
        if arrays is not None and self._collate is None:
            return Arrays(arrays, where)
        seeding = Seeding(self._seed)
        self._seedings.append(seeding)
        trains = name == "train"
        source: Source
        if is_sequence(dataset):
            if self._collate is not None:
                raise UsageError(
                    f"fn_batch_collate: got a function, takes None: the {name} data set gives whole batches"
                )
            batches = Batches(dataset, self._floats, seeding, where, trains=trains)
            self.notes += batches.notes
            source = batches
        else:
            if arrays is not None:
                dataset = _Rows(arrays, nested.rows(arrays, where))
            _check(name, dataset)
            source = Singles(dataset, self._floats, self._collate, seeding, where)
        if source.units and not _repeats(source, seeding, 0 if trains else TEST):
            self._warnings.append(
                (
                    f"the {name} data set",
                    "gives another value when it is asked for the same sample again: it draws from "
                    "a random generator of its own; draw from NumPy's, Python's or TensorFlow's global one",
                )
            )
        return source


class _Rows:
    """Arrays as a sequence of samples, for a collate function."""

    def __init__(self, arrays: Nested, length: int) -> None:
        self._arrays, self._length = arrays, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Nested:
        return nested.take(self._arrays, index)


def _repeats(source: Source, seeding: Seeding, epoch: int) -> bool:
    """Whether the same units have the same values when they are loaded again, with other units in between.

    If seeding TensorFlow on demand is not enough, as for ops with their own seed, TensorFlow is seeded for every unit.
    """
    indices = sorted({0, source.units // 2, source.units - 1}) if source.rows() == 1 else [0, source.units - 1]

    def repeats() -> bool:
        first, again = ([source.batch(epoch, [index]) for index in indices] for _ in range(2))
        return all(nested.equal(ours, theirs) for ours, theirs in zip(first, again, strict=True))

    for always in (False, True):
        seeding.always = always
        if repeats():
            return True
    seeding.always = False
    return False


def _cut_as(train: Source, test: Source) -> Source:
    """The test set in units of about the training set's size, because a micro-batch has the same number of units in
    both."""
    ours, theirs = train.rows(), test.rows()
    if theirs < ours:
        return Grouped(test, ours // theirs) if ours // theirs > 1 else test
    if theirs > ours == 1:
        return ByRow(test, "datasets_function: the test data set")
    return test


def _arrays(dataset: Any, floats: str, where: str) -> Nested | None:
    """(x, y) or (x, y, sample weight) as arrays; None if the data set has another form.

    Raises:
        UsageError: the data set is a tuple of lists, or its arrays have different numbers of rows.
    """
    if type(dataset) is not tuple or len(dataset) not in (2, 3) or all(isinstance(part, tuple) for part in dataset):
        return None
    if not any(isinstance(part, Mapping) or _is_array(part) for part in dataset):
        raise UsageError(
            f"{where}: got a tuple of lists, takes a tuple of arrays (numpy.array(…)), or a list of samples"
        )
    if dataset[-1] is None and len(dataset) == 3:
        dataset = dataset[:2]
    arrays = tuple(nested.to_numpy(part, floats, where) for part in dataset)
    lengths = nested.lengths_of(arrays)
    if len(lengths) > 1:
        raise UsageError(f"{where}: got arrays of {' and '.join(map(str, lengths))} rows, takes as many rows in each")
    return arrays


def _is_array(part: Any) -> bool:
    return hasattr(part, "__array__") and bool(np.ndim(part))


def _check(name: str, dataset: Any) -> None:
    takes = "takes an object with __getitem__ and __len__, item i of which is sample i"
    if (
        isinstance(dataset, Mapping | set | str)
        or not hasattr(dataset, "__getitem__")
        or not hasattr(dataset, "__len__")
    ):
        hint = streams.ADVICE if isinstance(dataset, Iterable) and not isinstance(dataset, Mapping | set | str) else ""
        raise UsageError(f"datasets_function: the {name} data set is {nested.described(dataset)}, {takes}{hint}")
    if isinstance(dataset, np.ndarray | tf.Tensor):
        raise UsageError(
            f"datasets_function: the {name} data set is one array, takes a tuple (x, y) of arrays; "
            "datasets_function returns ((x_train, y_train), (x_test, y_test))"
        )


_WAYS = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")
"""All ways to execute ops: eager ops use the first, tf.functions and the rest use the others."""


def refuse_ops() -> None:
    """From now on, every op of TensorFlow raises UsageError in this process.

    A loader process is forked from an engine in which TensorFlow already has threads. Threads do not survive a fork.
    A tf.function, or an op large enough for several threads, would therefore wait forever, while a small op might work
    by chance. Reading a tensor that was made before the fork is no op, and works.

    The names are private, because TensorFlow has no public way to make ops fail. If TensorFlow lacks one of them, ops
    are not refused in that way.
    """
    from tensorflow.python import pywrap_tfe

    for way in _WAYS:
        if hasattr(pywrap_tfe, way):
            setattr(pywrap_tfe, way, _refused)


def _refused(*arguments: Any, **named: Any) -> NoReturn:
    name = next((each for each in arguments if isinstance(each, str) and each and not each.startswith("/")), "an op")
    raise UsageError(
        f"datasets_function: a data set runs TensorFlow ({name}) in a loader process, where it would hang: "
        "use NumPy in __getitem__, or num_dataloader_threads=0, with which the engine itself loads"
    )
