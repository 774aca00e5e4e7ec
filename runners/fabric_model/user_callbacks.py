"""Checks of ``user_callback``; wraps each callback in the form that the runner calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edt_runner.callbacks.hooks import UserCallback
from edt_runner.callbacks.kinds import OF_BATCHES, OF_TESTS, OLDER, KerasCallback, WmlaCallback
from edt_runner.errors import UsageError
from fabric_model.arguments import usage

_HOOKS = ("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end")
_TAKES = "a callbacks.Callback instance or a list of them"
_STEP_HOOKS = (*OF_BATCHES, *OF_TESTS, *OLDER)
_OTHER_HOOK = re.compile(r"on_((predict_)?batch|predict|validation)_(begin|end)")
_OWN_LOGS = "give a driver_logger_callback instead: it gets the values of every step, from all engines"
_INSTEAD = {
    "ModelCheckpoint": "the model's files are written every checkpoint_freq epochs",
    "BackupAndRestore": "a training goes on from its own recovery checkpoints (recovery_interval)",
    "OrbaxCheckpoint": "a training goes on from its own recovery checkpoints (recovery_interval)",
    "TensorBoard": _OWN_LOGS,
    "CSVLogger": _OWN_LOGS,
    "RemoteMonitor": _OWN_LOGS,
    "ProgbarLogger": "the driver shows the training's progress",
    "TerminateOnNaN": "train(on_nonfinite='stop') does it, which is the default",
    "SwapEMAWeights": "it swaps the weights for each validation batch; keras.optimizers take use_ema=True",
}
"""Keras's callbacks that cannot run in every engine, most of which write files, and what a user can use instead."""


def attached(given: object, *, keras: bool) -> Sequence[UserCallback]:
    """Check and wrap the user's callbacks, in their order.

    Args:
        given: what the user gave: None, a callback, or a list of callbacks.
        keras: whether the model is a Keras model.

    Raises:
        UsageError: an item is no callback, cannot run in a training of several engines, or is given twice.
    """
    if given is None:
        return ()
    several = isinstance(given, (list, tuple))
    callbacks: Sequence[Any] = given if isinstance(given, (list, tuple)) else [given]
    found = [
        _attached(f"user_callback[{index}]" if several else "user_callback", callback, keras)
        for index, callback in enumerate(callbacks)
    ]
    if len({id(callback) for callback in callbacks}) < len(callbacks):
        raise UsageError("user_callback: got the same callback twice, takes each once")
    return found


def _attached(name: str, callback: Any, keras: bool) -> UserCallback:
    if isinstance(callback, type):
        raise usage(name, callback, "an instance, not the class")
    base = _keras_base(type(callback))
    if base is not None:
        if not keras:
            raise UsageError(f"{name}: got a Keras callback, takes {_TAKES}: the model is a torch.nn.Module")
        return KerasCallback(callback, _own_hooks(name, callback, base))
    if not any(callable(getattr(callback, hook, None)) for hook in (*_HOOKS, *_STEP_HOOKS)) or not hasattr(
        callback, "__dict__"
    ):
        raise usage(name, callback, _TAKES)
    if callable(getattr(callback, "log_train_metrics", None)):
        raise usage(name, callback, f"{_TAKES}; a logger goes to driver_logger_callback or worker_logger_callback")
    others = [hook for hook in dir(callback) if _OTHER_HOOK.fullmatch(hook) and hook not in _STEP_HOOKS]
    if others:
        raise UsageError(
            f"{name}: {type(callback).__name__} has {', '.join(others)}, which nothing here would call, takes the "
            f"hooks {', '.join((*_HOOKS, *OF_BATCHES, *OF_TESTS))}"
        )
    return WmlaCallback(callback)


def _own_hooks(name: str, callback: Any, base: type) -> list[str]:
    """The hooks that a Keras callback overrides.

    Raises:
        UsageError: the callback is one of Keras's that cannot run in every engine.
    """
    for kind in type(callback).__mro__:
        if kind.__name__ in _INSTEAD and _is_kerass(kind):
            raise UsageError(
                f"{name}: keras.callbacks.{kind.__name__} cannot run in several processes at once; "
                f"{_INSTEAD[kind.__name__]}"
            )
    hooks = [hook for hook in dir(base) if hook.startswith("on_")]
    return [hook for hook in hooks if _function_of(getattr(callback, hook, None)) is not getattr(base, hook)]


def _function_of(hook: Any) -> Any:
    return getattr(hook, "__func__", hook)


def _keras_base(kind: type) -> type | None:
    """Keras's class ``Callback`` if ``kind`` derives from it; else None."""
    return next((base for base in reversed(kind.__mro__) if base.__name__ == "Callback" and _is_kerass(base)), None)


def _is_kerass(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("keras", "tf_keras")
