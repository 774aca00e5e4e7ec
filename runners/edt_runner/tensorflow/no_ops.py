"""No TensorFlow in a loader process: what would hang there raises instead. Room: runners; TensorFlow.

A loader process is forked from an engine whose TensorFlow has threads already. Threads do not survive a fork, so that a
tf.function, or an op large enough to be shared among threads, waits for one for ever, while a small op happens to work.
Reading a tensor that was made before the fork is no op, and works.
"""

from __future__ import annotations

from typing import Any, NoReturn

from edt_runner.errors import UsageError

_WAYS = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")
"""All that is executed goes one of them: eager ops the first, tf.functions and the rest the others."""


def refuse() -> None:
    """In this process every op of TensorFlow raises UsageError from now on.

    The names are private: TensorFlow offers nothing that makes ops fail. Where one is missing nothing is refused by it.
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
