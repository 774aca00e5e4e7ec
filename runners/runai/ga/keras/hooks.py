"""The place of a module of the first Run:AI library, for Keras 2.2; the import raises an error.

The original's ``get_gradients``, ``update``, ``update_add`` and ``update_sub`` replaced functions of ``keras.backend``
by which an optimizer of that time built its graph. Keras 3 has neither those functions nor such a graph.
"""

from __future__ import annotations

raise ImportError(
    "runai.ga.keras.hooks replaced functions of Keras 2.2's backend (K.update, K.update_add, K.update_sub), which "
    "Keras 3 does not have; runai.ga.keras.optimizers.Optimizer(optimizer, steps) accumulates without them, and "
    "its apply(gradients, variables) is what takes a micro-batch's gradients"
)
