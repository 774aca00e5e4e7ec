"""What is done where TensorFlow has no deterministic kernel for an op, as for some on GPUs. Room: runners.

Asked for determinism, TensorFlow raises in place of such an op. A training goes on without, and says so.
"""

from __future__ import annotations


def is_lacking(error: Exception) -> bool:
    """Whether it was raised for that reason."""
    return is_asked_for() and "determinis" in str(error).lower()


def op_of(error: Exception) -> str:
    """Name of the op in the user's model, as far as it is told."""
    node = getattr(error, "node_def", None)
    return str(node.name) if node is not None else str(error).strip().partition("\n")[0][:200]


def give_up() -> None:
    """From now on ops are as they come."""
    from tensorflow.python.framework import config  # private: there is no public way back from determinism

    config.disable_op_determinism()


def is_asked_for() -> bool:
    """Whether ops are to be deterministic, or not to be at all."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())
