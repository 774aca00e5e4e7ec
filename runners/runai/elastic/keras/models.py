"""Makes a Keras model train on global batches.

    model = runai.elastic.keras.models.Model(model)

That object's ``compile`` and ``fit`` are then elastic; ``evaluate``, ``predict`` and saving stay Keras's own.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edt_runner import context
from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow.keras3_version import Keras3
from runai import elastic
from runai.ga.keras.optimizers import accumulates

_OPTIMIZER = "'optimizer' must be a valid keras.optimizers.Optimizer"
_OF_KERAS_2 = ("max_queue_size", "workers", "use_multiprocessing")


@dataclass(frozen=True)
class Plan:
    """How an update of a model is divided, as ``init`` has set it when the model was wrapped."""

    global_batch: int
    batch_size: int
    """Samples of the largest micro-batch."""
    steps: int
    gpus: int
    engines: bool
    """Whether OpenEDT's engines compute, which they do on several devices and in a job."""


def Model(model: Any) -> Any:  # noqa: N802 - its name of old
    """Make ``model`` elastic, and return it: one update of ``fit`` takes the global batch, in micro-batches.

    ``fit`` takes ``batch_size=runai.elastic.batch_size``, or no batch size. ``steps_per_epoch`` counts batches of that
    size, or the items of data that come in batches. A loss that is a sum is divided by the number of micro-batches; a
    RuntimeWarning is issued for such a loss.

    Args:
        model: a ``keras.Model``, compiled or not.

    Raises:
        UsageError: (a ValueError) ``init`` was not called, or the model is already elastic or has its own training
            loop.
    """
    if not isinstance(model, keras.Model):
        raise UsageError(f"model: got {type(model).__name__}, takes a keras.Model of Keras 3")
    if "__runai__" in vars(model):
        raise UsageError("model: got one that is elastic already, takes each model once")
    if not hasattr(elastic, "steps"):
        raise UsageError("Model(): called before runai.elastic.keras.init(global_batch_size, max_gpu_batch_size)")
    alone = elastic.gpus == 1 and context.current() is None
    plan = Plan(elastic.global_batch_size, elastic.batch_size, elastic.steps, elastic.gpus, not alone)
    if plan.engines or plan.steps > 1:
        _check_loop(model)
        if model.compiled:
            _optimizer(plan, model.optimizer)
            _warn_of_sums(model.loss)
            model.jit_compile = False
            model.train_function = None
    # Write to __dict__ directly: Keras would treat an assigned attribute as a part of the model.
    vars(model)["__runai__"] = {name: getattr(model, name) for name in ("compile", "fit")}
    vars(model)["compile"] = functools.partial(_compile, model, plan)
    vars(model)["fit"] = functools.partial(_fit, model, plan)
    vars(model)["fit_generator"] = functools.partial(_fit_generator, model)
    if plan.steps > 1 and not plan.engines:
        vars(model)["train_step"] = _train_step_of(model, plan.batch_size)
    return model


def _check_loop(model: Any) -> None:
    for name in ("train_step", "make_train_function"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise UsageError(
                f"model: {type(model).__name__} has a {name} of its own, which would not be called for micro-batches; "
                "takes a model that overrides compute_loss or compute_metrics, or uses add_loss, instead"
            )


def _compile(model: Any, plan: Plan, /, *args: Any, **kwargs: Any) -> None:
    original: Callable[..., None] = model.__runai__["compile"]
    given = inspect.signature(original).bind(*args, **kwargs)
    if "optimizer" in given.arguments:
        given.arguments["optimizer"] = _optimizer(plan, given.arguments["optimizer"])
    if plan.engines or plan.steps > 1:  # a compiler of fixed shapes does not know the micro-batches' sizes
        given.arguments.setdefault("jit_compile", False)
        _warn_of_sums(given.arguments.get("loss"))
    original(*given.args, **given.kwargs)


def _warn_of_sums(losses: Any) -> None:
    """Warn of losses that are no means over samples, because micro-batches are weighted by their samples."""
    for loss in keras.tree.flatten(losses):
        if (reduction := getattr(loss, "reduction", None)) in ("sum", "mean_with_sample_weight"):
            warnings.warn(
                f"loss: got {type(loss).__name__}(reduction={reduction!r}), takes reduction='sum_over_batch_size': "
                "with this one an update depends on the number of its micro-batches, and so on the devices",
                RuntimeWarning,
                stacklevel=4,
            )


def _optimizer(plan: Plan, given: Any) -> Any:
    """An optimizer instance for an instance, a name or a config."""
    try:
        optimizer = keras.optimizers.get(given)
    except ValueError as error:
        raise UsageError(f"{_OPTIMIZER}, or the name of one: got {given!r}") from error
    if optimizer is None:
        raise UsageError(f"{_OPTIMIZER}, or the name of one: got None")
    if (plan.engines or plan.steps > 1) and accumulates(optimizer) > 1:
        raise UsageError(
            f"optimizer: got one that takes {accumulates(optimizer)} batches to an update by itself, takes a plain "
            "one: the model's fit already makes one update of its micro-batches"
        )
    return optimizer


def _fit(model: Any, plan: Plan, /, *args: Any, **kwargs: Any) -> Any:
    original: Callable[..., Any] = model.__runai__["fit"]
    given = inspect.signature(original).bind(*args, **kwargs)
    _check_batch_size(plan, given.arguments.get("batch_size"))
    if plan.engines:
        from runai.elastic.keras import _engines

        given.apply_defaults()
        return _engines.fit(model, plan, given.arguments)
    arguments = given.arguments
    x = arguments.get("x")
    if is_arrays(x):
        arguments["batch_size"] = plan.global_batch
        if (items := arguments.get("steps_per_epoch")) is not None:
            arguments["steps_per_epoch"] = -(-int(items) // plan.steps)
    elif plan.steps > 1 and x is not None:
        arguments.pop("batch_size", None)
        arguments["x"], arguments["steps_per_epoch"] = regrouped(
            x, plan.global_batch, plan.batch_size, arguments.get("steps_per_epoch")
        )
    if is_arrays(arguments.get("validation_data")) or arguments.get("validation_split"):
        arguments["validation_batch_size"] = arguments.get("validation_batch_size") or plan.batch_size
    return original(*given.args, **given.kwargs)


def _check_batch_size(plan: Plan, given: Any) -> None:
    """Refuse another batch size than the one that ``init`` has set."""
    if given not in (None, plan.batch_size, plan.global_batch):
        raise UsageError(
            f"batch_size: got {given!r}, takes runai.elastic.batch_size, which is {plan.batch_size}, or nothing: "
            f"init() has spread a global batch of {plan.global_batch}"
        )


def _fit_generator(model: Any, generator: Any, steps_per_epoch: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Keras 2's ``fit_generator``. In Keras 3, ``fit`` takes generators."""
    warnings.warn(
        "fit_generator() is fit() under its name of Keras 2; call fit(), which takes generators, too",
        DeprecationWarning,
        stacklevel=2,
    )
    names = ("epochs", "verbose", "callbacks", "validation_data", "validation_steps", "validation_freq", "class_weight")
    if len(args) > len(names):
        raise UsageError(f"fit_generator(): got {len(args) + 2} positional arguments, takes {len(names) + 2}")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    for name in _OF_KERAS_2:
        given.pop(name, None)  # how items are fetched; in Keras 3 this is set at the data set
    if hasattr(generator, "__next__"):
        given["shuffle"] = False  # a generator was never shuffled, and Keras 3 warns about it
    given["steps_per_epoch"] = None if steps_per_epoch is None else int(steps_per_epoch)
    return model.fit(generator, **given)


_KERAS = Keras3()


def _train_step_of(model: Any, most: int) -> Callable[[Any], dict[str, Any]]:
    """Make a ``train_step`` that computes one update of a Keras model from micro-batches, on one device.

    The data that ``fit`` passes are a global batch. The model computes it in parts that the device can hold. Each
    part's mean gradient is weighted by its share of the samples, and then the optimizer takes one step. If the loss is
    a mean over samples, this step is that of the whole batch, also for an epoch's last, smaller batch. Floating-point
    variables that a forward pass changes (batch normalization's moving averages) become the same weighted mean over
    the parts; each part starts from their values before the update. Engines do the same, so these variables do not
    depend on the number of devices either.

    Args:
        model: the model; it must be compiled before the train step is called.
        most: the most samples of a part.
    """

    def train_step(data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        rows = tf.shape(_first(x))[0]
        parts = tf.maximum(1, (rows + most - 1) // most)
        base, extra = rows // parts, rows % parts
        weights = model.trainable_weights
        moving = [w for w in model.non_trainable_weights if keras.backend.is_float_dtype(w.dtype)]
        before = [tf.identity(_KERAS.value(weight)) for weight in moving]
        used: list[bool] = []

        def one(index: Any, sums: list[Any], moves: list[Any]) -> tuple[Any, list[Any], list[Any]]:
            start = index * base + tf.minimum(index, extra)
            size = base + tf.cast(index < extra, rows.dtype)
            share = tf.cast(size, tf.float64) / tf.cast(tf.maximum(rows, 1), tf.float64)
            for weight, value in zip(moving, before, strict=True):
                weight.assign(value)
            part = [_rows(each, start, size) for each in (x, y, sample_weight)]
            gradients = _gradients(model, weights, *part)
            used[:] = [gradient is not None for gradient in gradients]
            return (
                index + 1,
                [held if g is None else held + _dense(g, held.dtype) * tf.cast(share, held.dtype)
                 for held, g in zip(sums, gradients, strict=True)],
                [move + (_KERAS.value(weight) - value) * tf.cast(share, value.dtype)
                 for move, weight, value in zip(moves, moving, before, strict=True)],
            )  # fmt: skip

        zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
        _, sums, moves = tf.while_loop(
            lambda index, *_: index < parts,
            one,
            [tf.constant(0), zeros, [tf.zeros_like(value) for value in before]],
            parallel_iterations=1,
        )
        for weight, value, move in zip(moving, before, moves, strict=True):
            weight.assign(value + move)
        pairs = [(total if seen else None, weight) for total, weight, seen in zip(sums, weights, used, strict=True)]
        model.optimizer.apply_gradients(pairs)
        return dict(model.get_metrics_result())

    return train_step


def _gradients(model: Any, weights: list[Any], x: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Gradients of the mean loss of one part; this also updates the metrics."""
    with tf.GradientTape() as tape:
        outputs = _KERAS.call(model, x, training=True)
        loss = _KERAS.compute_loss(model, x, y, outputs, sample_weight, training=True)
        scaled = model.optimizer.scale_loss(loss)
    model._loss_tracker.update_state(loss, sample_weight=tf.shape(_first(x))[0])
    model.compute_metrics(x, y, outputs, sample_weight=sample_weight)
    return list(tape.gradient(scaled, weights))


def _first(x: Any) -> Any:
    return next(leaf for leaf in keras.tree.flatten(x) if leaf is not None)


def _rows(nest: Any, start: Any, size: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[start : start + size], nest)


def _dense(gradient: Any, dtype: Any) -> Any:
    return tf.cast(tf.convert_to_tensor(gradient), dtype)


def is_arrays(x: Any) -> bool:
    """Whether Keras itself divides this data into batches."""
    return isinstance(x, (list, tuple, dict)) or hasattr(x, "__array__") or isinstance(x, tf.Tensor)


def regrouped(x: Any, batch: int, micro_batch: int, steps_per_epoch: int | None) -> tuple[Any, int | None]:
    """Regroup data that are not arrays, so that each item is a global batch.

        tf.data.Dataset             batches of exactly the global batch, and a smaller last one
        PyDataset                   joins as many items as hold a global batch, judged by the first item
        generator                   the same; with steps_per_epoch, an epoch's last items are joined separately

    Args:
        x: the data.
        batch: samples of the global batch.
        micro_batch: samples of an item if a ``tf.data.Dataset`` is empty.
        steps_per_epoch: items of ``x`` in an epoch; None: all items.

    Returns:
        The regrouped data, and their ``steps_per_epoch``.

    Raises:
        UsageError: ``x`` is of another type.
    """
    if isinstance(x, tf.data.Dataset):
        rows = next((_row_count(item) for item in x.take(1)), micro_batch)
        return _counted(x.rebatch(batch), int(x.cardinality()), rows, batch), _groups(steps_per_epoch, rows, batch)
    if isinstance(x, keras.utils.PyDataset):
        group = -(-batch // _row_count(x[0]))
        return _Grouped(x, group), _groups(steps_per_epoch, 1, group)
    if hasattr(x, "__next__"):
        first = next(x)
        group = -(-batch // _row_count(first))
        together = _together(itertools.chain([first], x), group, steps_per_epoch)
        return together, _groups(steps_per_epoch, 1, group)
    raise UsageError(
        f"x: got {type(x).__name__}, takes arrays, a tf.data.Dataset, a keras.utils.PyDataset or a generator"
    )


def _groups(items: int | None, rows: int, batch: int) -> int | None:
    return None if items is None else -(-int(items) * rows // batch)


def _counted(dataset: Any, items: int, rows: int, batch: int) -> Any:
    """Set the length of ``dataset``, which regrouping has lost, if it does not depend on the size of the last item."""
    least, most = -(-((items - 1) * rows + 1) // batch), -(-items * rows // batch)
    return dataset.apply(tf.data.experimental.assert_cardinality(most)) if items > 0 and least == most else dataset


class _Grouped(keras.utils.PyDataset):  # type: ignore[misc]
    """Joins ``size`` items of ``inner`` into one."""

    def __init__(self, inner: Any, size: int) -> None:
        super().__init__(
            workers=inner.workers, use_multiprocessing=inner.use_multiprocessing, max_queue_size=inner.max_queue_size
        )
        self._inner, self._size = inner, size

    @property
    def num_batches(self) -> int | None:
        count = self._inner.num_batches
        return None if count is None else -(-count // self._size)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._inner), self._size)
        return whole + (rest > 0)

    def __getitem__(self, index: int) -> Any:
        start, count = index * self._size, self._inner.num_batches
        stop = start + self._size if count is None else min(start + self._size, count)
        return _joined([self._inner[each] for each in range(start, stop)])

    def on_epoch_begin(self) -> None:
        self._inner.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._inner.on_epoch_end()


def _together(items: Iterator[Any], size: int, of_an_epoch: int | None) -> Iterator[Any]:
    while True:
        left = of_an_epoch
        while left is None or left > 0:
            group = list(itertools.islice(items, size if left is None else min(size, left)))
            if not group:
                return
            yield _joined(group)
            left = None if left is None else left - len(group)


def _joined(items: list[Any]) -> Any:
    return keras.tree.map_structure(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *items)


def _row_count(item: Any) -> int:
    return max(1, len(keras.tree.flatten(item)[0]))
