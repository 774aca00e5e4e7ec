"""Writes a trained Keras model as ONNX, by tf2onnx, for both versions of Keras.

The model is traced in inference mode for any number of rows. The file has one input for each array of the model's
inputs, and one output for each tensor that it returns.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from edt_runner.errors import RunnerError
from edt_runner.frameworks.onnx_export import FILE, SIZES, Example
from edt_runner.frameworks.tensorflow.passes import as_tensors
from edt_runner.frameworks.tensorflow.trainable import KerasTrainable
from edt_runner.frameworks.trainable import Samples

PACKAGES = ("tf2onnx",)
_OPSET = 18
"""The newest version of ONNX's operators that tf2onnx writes."""


def export(trainable: KerasTrainable, samples: Samples, folder: Path) -> list[Example]:
    """Write the model. See ``onnx_export.Exporter``."""
    keras, model, floats = trainable.keras, trainable.model, trainable.keras.keras.backend.floatx()
    batches = [as_tensors(batch, floats)[0] for batch in _batches(samples)]

    def call(*tensors: Any) -> dict[str, Any]:
        inputs = tf.nest.pack_sequence_as(batches[0], tensors)
        returned = keras.call(model, inputs, training=False)
        outputs = _names(returned, getattr(model, "output_names", None), "output")
        return dict(zip(outputs, tf.nest.flatten(returned), strict=True))

    names = _names(batches[0], getattr(model, "input_names", None), "input")
    flat = [tf.nest.flatten(batch) for batch in batches]
    with tf.device("/CPU:0"):
        results = [call(*tensors) for tensors in flat]
        _write(tf.function(call, autograph=keras.autograph), names, flat, folder)
    half = any(str(getattr(part, "compute_dtype", "")).endswith("float16") for part in trainable.parts())
    return [
        Example(
            {name: np.array(tensor) for name, tensor in zip(names, tensors, strict=True)},
            {name: np.array(tensor) for name, tensor in result.items()},
            half,
        )
        for tensors, result in zip(flat, results, strict=True)
    ]


def _batches(samples: Samples) -> list[Any]:
    """Batches of ``SIZES`` units of the training set, each (x, y) or (x, y, sample weight)."""
    found, begin = [], 0
    for size in SIZES:
        found.append(samples.batch(True, 0, [unit % samples.train_units for unit in range(begin, begin + size)]))
        begin += size
    return found


def _write(function: Any, names: list[str], flat: list[list[Any]], folder: Path) -> None:
    tf2onnx: Any = importlib.import_module("tf2onnx")
    signature = [
        tf.TensorSpec(_shape(tensors), tensors[0].dtype, name)
        for name, tensors in zip(names, zip(*flat, strict=True), strict=True)
    ]
    proto, _ = tf2onnx.convert.from_function(function, signature, opset=_OPSET)
    unknown = sorted({node.op_type for node in proto.graph.node if _is_unknown(node)})
    if unknown:
        raise RunnerError(f"ONNX has no counterpart of TensorFlow's {', '.join(unknown)}")
    for place in (*proto.graph.input, *proto.graph.output):
        _name_batch(place)
    (folder / FILE).write_bytes(proto.SerializeToString())


def _is_unknown(node: Any) -> bool:
    """Whether a node is an operator of TensorFlow, which tf2onnx leaves in the graph if it does not know it."""
    onnx: Any = importlib.import_module("onnx")
    return node.domain in ("", "ai.onnx") and not onnx.defs.has(node.op_type, _OPSET, "")


def _shape(tensors: tuple[Any, ...]) -> list[int | None]:
    """Sizes of dimensions; None: it is the batch, or it differs between the batches."""
    sizes = list(zip(*(tensor.shape.as_list() for tensor in tensors), strict=True))
    return [None if place == 0 or len(set(each)) > 1 else each[0] for place, each in enumerate(sizes)]


def _name_batch(place: Any) -> None:
    """Give the first dimension of an input or an output its name."""
    sizes = place.type.tensor_type.shape.dim
    if len(sizes) and not sizes[0].HasField("dim_value"):
        sizes[0].dim_param = "batch"


def _names(value: Any, declared: Sequence[str] | None, single: str) -> list[str]:
    """Names of the tensors inside a nested value, in the order of ``tf.nest``: those of their keys, or those that a
    functional model declares, or ``single``."""
    if isinstance(value, Mapping):
        found = _of_keys(value)
    else:
        number = len(tf.nest.flatten(value))
        found = [single] if number == 1 else list(declared or ())
        if len(found) != number:
            found = [f"{single}_{place}" for place in range(number)]
    return [re.sub(r"\W", "_", name) for name in found]


def _of_keys(value: Any, path: tuple[str, ...] = ()) -> list[str]:
    if isinstance(value, Mapping):
        return [name for key in sorted(value) for name in _of_keys(value[key], (*path, str(key)))]
    if isinstance(value, list | tuple):
        return [name for place, item in enumerate(value) for name in _of_keys(item, (*path, str(place)))]
    return ["_".join(path)]
