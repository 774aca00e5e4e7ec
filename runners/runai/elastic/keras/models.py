"""A Keras model that trains on global batches. Room: runners; Keras 3 on TensorFlow.

    model = runai.elastic.keras.models.Model(model)

``compile`` and ``fit`` of that object are then elastic; ``evaluate``, ``predict`` and saving are Keras's own.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from edt_runner import context
from edt_runner.errors import UsageError
from runai import elastic
from runai.elastic.keras import _sources, _step
from runai.ga.keras.optimizers import accumulates

_OPTIMIZER = "'optimizer' must be a valid keras.optimizers.Optimizer"
_OF_KERAS_2 = ("max_queue_size", "workers", "use_multiprocessing")


@dataclass(frozen=True)
class Plan:
    """How one update of a model is made, as ``init`` said when the model was wrapped."""

    global_batch: int
    batch_size: int
    """Samples of the largest micro-batch."""
    steps: int
    gpus: int
    engines: bool
    """Whether engines of ours compute: on several devices, and in a job."""


def Model(model: Any) -> Any:  # noqa: N802 - its name of old
    """``model`` itself, made elastic: one update of ``fit`` takes the global batch, in micro-batches.

    ``fit`` takes ``batch_size=runai.elastic.batch_size``, or none. ``steps_per_epoch`` counts batches of that size, or
    the items of data that come in batches (``_sources``). A loss that is a sum is divided by the micro-batches,
    of which a RuntimeWarning tells.

    Args:
        model: a ``keras.Model``, compiled or not.

    Raises:
        UsageError: (a ValueError) there was no ``init``, or the model has a training loop of its own.
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
    # Into __dict__, past Keras, which would take what is assigned for a part of the model.
    vars(model)["__runai__"] = {name: getattr(model, name) for name in ("compile", "fit")}
    vars(model)["compile"] = functools.partial(_compile, model, plan)
    vars(model)["fit"] = functools.partial(_fit, model, plan)
    vars(model)["fit_generator"] = functools.partial(_fit_generator, model)
    if plan.steps > 1 and not plan.engines:
        vars(model)["train_step"] = _step.train_step_of(model, plan.batch_size)
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
    if plan.engines or plan.steps > 1:  # parts have sizes that a compiler of fixed shapes does not know
        given.arguments.setdefault("jit_compile", False)
        _warn_of_sums(given.arguments.get("loss"))
    original(*given.args, **given.kwargs)


def _warn_of_sums(losses: Any) -> None:
    """Micro-batches weigh by their samples, which is right for means over samples."""
    for loss in keras.tree.flatten(losses):
        if (reduction := getattr(loss, "reduction", None)) in ("sum", "mean_with_sample_weight"):
            warnings.warn(
                f"loss: got {type(loss).__name__}(reduction={reduction!r}), takes reduction='sum_over_batch_size': "
                "with this one an update depends on the number of its micro-batches, and so on the devices",
                RuntimeWarning,
                stacklevel=4,
            )


def _optimizer(plan: Plan, given: Any) -> Any:
    """An instance for an instance, a name or a config."""
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
    if _sources.is_arrays(x):
        arguments["batch_size"] = plan.global_batch
        if (items := arguments.get("steps_per_epoch")) is not None:
            arguments["steps_per_epoch"] = -(-int(items) // plan.steps)
    elif plan.steps > 1 and x is not None:
        arguments.pop("batch_size", None)
        arguments["x"], arguments["steps_per_epoch"] = _sources.regrouped(
            x, plan.global_batch, plan.batch_size, arguments.get("steps_per_epoch")
        )
    if _sources.is_arrays(arguments.get("validation_data")) or arguments.get("validation_split"):
        arguments["validation_batch_size"] = arguments.get("validation_batch_size") or plan.batch_size
    return original(*given.args, **given.kwargs)


def _check_batch_size(plan: Plan, given: Any) -> None:
    """It has been decided by ``init``."""
    if given not in (None, plan.batch_size, plan.global_batch):
        raise UsageError(
            f"batch_size: got {given!r}, takes runai.elastic.batch_size, which is {plan.batch_size}, or nothing: "
            f"init() has spread a global batch of {plan.global_batch}"
        )


def _fit_generator(model: Any, generator: Any, steps_per_epoch: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Keras 2's: ``fit`` takes generators today."""
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
        given.pop(name, None)  # how a generator's items are fetched: Keras 3 asks the data set
    if hasattr(generator, "__next__"):
        given["shuffle"] = False  # it never was, and Keras 3 warns of it
    given["steps_per_epoch"] = None if steps_per_epoch is None else int(steps_per_epoch)
    return model.fit(generator, **given)
