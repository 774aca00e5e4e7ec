"""Checks of a Keras user's arguments of FabricModel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edt_runner.errors import UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion
from edt_runner.frameworks.tensorflow.keras_versions import keras_version_of
from edt_runner.frameworks.tensorflow.own_steps import overrides
from edt_runner.frameworks.tensorflow.trainable import KerasTrainable, weight_of
from fabric_model.arguments import check_callable, usage

_OWN_LOOPS = ("make_train_function", "make_test_function")
_INSTEAD = {
    "training_step": "a model whose class has a train_step",
    "validation_step": "a model whose class has a test_step",
    "fn_step_train": "a model whose class has a train_step",
    "fn_test": "a model whose class has a test_step",
}
"""Arguments of PyTorch's side, and what a Keras user gives instead."""
_MEANS = ("sum_over_batch_size", "auto", "mean", "mean_with_sample_weight")
"""Reductions of Keras's losses that are means, of whatever they divide by."""


def trainable(model: Any, optimizer: Any, keras_custom_objects: Any, asked: Asked) -> KerasTrainable:
    """Check the arguments and compile the model with them.

    Raises:
        UsageError: an argument is wrong; the message names it, the value it got, and the values it takes.
    """
    loss_function, metrics = asked.loss_function, asked.metrics
    keras = keras_version_of(model)
    _check_beyond_plain(asked)
    check_model(keras, model)
    register(keras, keras_custom_objects)
    loss_function, optimizer, metrics = (_by_name(keras, value) for value in (loss_function, optimizer, metrics))
    if loss_function is not None or not overrides(keras, model, "train_step"):
        check_losses(keras, loss_function)
    sums = _are_sums(loss_function)
    _check_reduction(asked, sums=sums)
    chosen = optimizer_of(keras, optimizer)
    check_metrics(keras, metrics)
    if metrics is None:
        metrics = ["accuracy"] if _scores_classes(model, loss_function) else []
    try:
        keras.compile(model, chosen, loss_function, metrics)
    except TypeError as error:
        if not overrides(keras, model, "compile"):
            raise
        raise UsageError(
            f"model: {type(model).__name__} has a compile of its own ({error}), takes one with Keras's arguments; give "
            "the loss and the optimizer to FabricModel"
        ) from error
    tokens = (asked.token_count or weight_of) if asked.loss_reduction == "token" else None
    return KerasTrainable(keras, model, has_loss=loss_function is not None, sums=sums, tokens=tokens)


def _check_beyond_plain(asked: Asked) -> None:
    """Refuse functions of PyTorch's side.

    Raises:
        UsageError: there is one.
    """
    for name in asked.beyond_plain():
        if name in _INSTEAD:
            raise UsageError(f"{name}: got a value, takes None with a keras.Model; give {_INSTEAD[name]}")


def _check_reduction(asked: Asked, *, sums: bool) -> None:
    """Check ``loss_reduction`` against the losses.

    Raises:
        UsageError: it needs losses that are sums, and they are not; or a number of tokens is given without need.
    """
    reduction = asked.loss_reduction
    if reduction not in ("sample", "token", "sum"):
        raise usage("loss_reduction", reduction, "'sample', 'token' or 'sum'")
    if reduction != "sample" and not sums:
        what = "the sum over its tokens, which sample weights may mask" if reduction == "token" else "a sum"
        raise usage(
            "loss_reduction",
            reduction,
            f"'sample', or with it a loss of keras.losses with reduction='sum': the loss of a micro-batch is {what}",
        )
    if asked.token_count is not None:
        check_callable("token_count", asked.token_count)
        if reduction != "token":
            raise UsageError(f"token_count: got a value, takes None with loss_reduction={reduction!r}")


def _are_sums(losses: Any) -> bool:
    """Whether the losses are sums over samples.

    Raises:
        UsageError: some are sums and others means, or one is neither.
    """
    found: dict[str, str] = {}
    for place, loss in _leaves("loss_function", losses):
        reduction = getattr(loss, "reduction", _MEANS[0])
        if loss is not None and reduction != "sum" and reduction not in _MEANS:
            raise UsageError(
                f"{place}: got a loss with reduction={reduction!r}, takes 'sum_over_batch_size' or 'sum': a step has "
                "one number as its loss"
            )
        if loss is not None:
            found["a sum" if reduction == "sum" else "a mean"] = place
    if len(found) > 1:
        places = " and ".join(f"{what} in {place}" for what, place in found.items())
        raise UsageError(f"loss_function: got {places}, takes one reduction in all: 'sum_over_batch_size' or 'sum'")
    return "a sum" in found


def check_model(keras: KerasVersion, model: Any) -> None:
    """Check that a model has no training loop of its own.

    A step of its own (train_step, test_step) is called on micro-batches; a loop around steps would not be called.

    Raises:
        UsageError: the model has its own loop.
    """
    for name in _OWN_LOOPS:
        if overrides(keras, model, name):
            raise UsageError(
                f"model: {type(model).__name__} has a {name} of its own, which would not be called: many engines "
                "compute one step, so it is done here; takes a model that overrides train_step and test_step, or "
                "compute_loss and compute_metrics, instead"
            )


def register(keras: KerasVersion, objects: Any) -> None:
    """Register a user's own classes and functions under names, in this process.

    Raises:
        UsageError: ``objects`` is no dict of name -> class or function.
    """
    if objects is None:
        return
    takes = "a dict of name -> class or function"
    if not isinstance(objects, Mapping):
        raise usage("keras_custom_objects", objects, takes)
    for name, value in objects.items():
        if not isinstance(name, str):
            raise usage("keras_custom_objects", name, takes)
        if not callable(value):
            raise usage(f"keras_custom_objects[{name!r}]", value, "a class or a function")
    keras.keras.utils.get_custom_objects().update(objects)


def check_losses(keras: KerasVersion, losses: Any) -> None:
    """Check each loss.

    Raises:
        UsageError: there is no loss, or one that Keras does not take.
    """
    takes = "the name of a Keras loss, a keras.losses.Loss, a function (y_true, y_pred), or a list or dict of those"
    if losses is None:
        raise usage("loss_function", losses, takes)
    _check_each("loss_function", losses, lambda name: name in ("crossentropy", "ce"), keras.keras.losses.get, takes)


def optimizer_of(keras: KerasVersion, optimizer: Any) -> Any:
    """An optimizer instance. ``optimizer`` is an instance or a name.

    Raises:
        UsageError: ``optimizer`` is neither, or Keras has no optimizer of this name.
    """
    kind = f"{keras.keras.__name__}.optimizers.Optimizer"
    takes = f"a {kind} instance or the name of one, such as 'adam'"
    if isinstance(optimizer, type):
        raise usage("optimizer", optimizer, "an instance, not the class")
    if isinstance(optimizer, str):
        return _resolve("optimizer", optimizer, keras.keras.optimizers.get, takes)
    if not isinstance(optimizer, keras.optimizer_types):
        raise usage("optimizer", optimizer, takes)
    return optimizer


def check_metrics(keras: KerasVersion, metrics: Any) -> None:
    """Check each metric.

    Raises:
        UsageError: ``metrics`` is no list or dict, or Keras does not take one of them.
    """
    takes = "the name of a Keras metric, a keras.metrics.Metric or a function (y_true, y_pred)"
    if metrics is None:
        return
    if not isinstance(metrics, list | tuple | Mapping):
        raise usage("metrics", metrics, f"a list or dict, each item {takes}")
    known = ("accuracy", "acc", "crossentropy", "ce")
    _check_each("metrics", metrics, lambda name: name.lower() in known, keras.keras.metrics.get, takes)


def _check_each(
    argument: str, given: Any, is_known: Callable[[str], bool], get: Callable[[str], Any], takes: str
) -> None:
    """Check that each loss or metric is None, a function, or a name that is known or that Keras has."""
    for place, each in _leaves(argument, given):
        if isinstance(each, str):
            if not is_known(each):
                _resolve(place, each, get, takes)
        elif isinstance(each, type):
            raise usage(place, each, "an instance, not the class")
        elif each is not None and not callable(each):
            raise usage(place, each, takes)


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(place, value) of everything inside nested lists and dicts."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{place}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{place}[{index}]", item)
    else:
        yield place, value


def _by_name(keras: KerasVersion, value: Any) -> Any:
    """Replace registered names by the user's own objects. Keras resolves such names for its own layers only."""
    if isinstance(value, Mapping):
        return {key: _by_name(keras, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_by_name(keras, item) for item in value)
    if not isinstance(value, str):
        return value
    found = keras.keras.utils.get_custom_objects().get(value, value)
    return found() if isinstance(found, type) else found


def _resolve(place: str, name: str, get: Callable[[str], Any], takes: str) -> Any:
    try:
        found = get(name)
    except ValueError:
        found = name
    if isinstance(found, str):  # Keras 2 returns some names that it does not know
        raise usage(place, name, takes)
    return found


def _scores_classes(model: Any, loss: Any) -> bool:
    """Whether the model has one output and a loss over classes, so that accuracy is meaningful."""
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    return "crossentropy" in str(name) and len(getattr(model, "outputs", None) or [None]) == 1
