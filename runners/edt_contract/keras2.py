"""The modules of Keras 2's first years, whose names moved to the packages above them.

The runner gives such names to a script that runs with Keras 2. The API recognizes such a script by them.
"""

from __future__ import annotations

_OLDER_MODULES = {
    **dict.fromkeys(
        (
            "advanced_activations", "convolutional", "convolutional_recurrent", "core", "cudnn_recurrent",
            "embeddings", "local", "merge", "noise", "normalization", "pooling", "recurrent", "wrappers",
        ),
        "layers",
    ),
    **dict.fromkeys(("np_utils", "vis_utils", "generic_utils", "data_utils", "layer_utils", "io_utils"), "utils"),
}  # fmt: skip
"""Name of a module that was public once -> the package that it was in, and that has its names now."""
_ENGINE = {
    **dict.fromkeys(("", "topology", "base_layer", "input_layer"), "layers"),
    **dict.fromkeys(("training", "sequential"), "models"),
}
"""Modules of ``keras.engine`` ("" is the package itself) -> the packages that have their names now."""


def package_now(module: str) -> str | None:
    """The package of Keras that has the names of an older module, such as ``layers``; None if ``module`` is none.

    Args:
        module: dotted name inside Keras, such as ``layers.core`` for ``keras.layers.core``.
    """
    package, _, name = module.partition(".")
    if package == "engine":
        return _ENGINE.get(name)
    return package if _OLDER_MODULES.get(name) == package else None
