"""Memory shared by TensorFlow's tensors and torch's. Room: runners; TensorFlow and torch.

TensorFlow replaces what a variable holds instead of writing over it as long as somebody else has it: a view of a
variable stays what it was when it was taken.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import torch
import torch.utils.dlpack
from torch import Tensor

_ALIGNMENT = 64
"""Bytes; TensorFlow aborts the process over a tensor in host memory that begins elsewhere."""


def to_torch(tensor: Any) -> Tensor:
    """A torch tensor of the same memory; a tensor on a GPU is copied to the host first."""
    if "CPU" not in tensor.device:
        with tf.device("/CPU:0"):
            tensor = tf.identity(tensor)
    view: Tensor = torch.utils.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(tensor))
    return view


def to_tensorflow(tensor: Tensor) -> Any:
    """A TensorFlow tensor of the same memory, which must stay as it is while that lives."""
    if tensor.data_ptr() % _ALIGNMENT or not tensor.is_contiguous():
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))  # type: ignore[attr-defined]


def torch_type(dtype: Any) -> torch.dtype:
    """torch's name for a type of TensorFlow's."""
    found = getattr(torch, tf.as_dtype(dtype).name)
    assert isinstance(found, torch.dtype)
    return found
