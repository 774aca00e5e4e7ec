"""TensorFlow's side of the runner: the code that knows Keras models, optimizers and data sets.

Only processes of jobs in TensorFlow import this package. It gives the engine torch tensors, which share their memory
with TensorFlow's tensors where possible. This module has what a process needs before there is a model: TensorFlow's
threads, determinism and seeds.

With determinism switched on, TensorFlow raises an error for an op that has no deterministic kernel, such as some ops
on GPUs. The training then continues without determinism and reports that its result is not exact.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from edt_contract.frameworks import keras2
from edt_runner import context
from edt_runner.frameworks import Framework
from edt_runner.frameworks.tensorflow import downloads, keras2_names, keras2_scripts


class TensorFlow(Framework):
    """TensorFlow, as a process needs it before there is a model."""

    name = "tensorflow"

    def warm(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # users do not need TensorFlow's messages about itself
        super().warm()
        importlib.import_module("tf_keras" if keras2() else "keras")

    def enter(self, threads: int, seed: int) -> None:
        """Set threads, determinism and seeds. Ops run one after another, so that sums have one order.

        Args:
            threads: threads of one op of TensorFlow.
            seed: for the global generators.
        """
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for gpu in tf.config.list_physical_devices("GPU"):  # else it takes all memory, also that of other engines
            tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.experimental.enable_op_determinism()
        # torch only copies and adds here. Its threads would wait for work actively, on the cores that TensorFlow needs.
        super().enter(1, seed)
        if keras2():  # dropout and similar layers then draw from generators whose state a step can set
            importlib.import_module("tf_keras").backend.experimental.enable_tf_random_generator()
        role = context.current()
        if role is None or role.spec.driver == "external":
            return  # a process that the user has started, where ``keras`` is the package that is installed
        downloads.appear_whole()
        if keras2():
            keras2_names.call_it_keras()
            keras2_names.accept_lr()

    def seed(self, seed: int) -> None:
        import tensorflow as tf

        super().seed(seed)
        tf.random.set_seed(seed)

    def gpus(self) -> int:
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))

    def explain(self, error: BaseException) -> str | None:
        return keras2_scripts.hint(error)

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        import tensorflow as tf

        threading = tf.config.threading
        found = {
            **super().computing(on_device=on_device),
            "threads": threading.get_intra_op_parallelism_threads(),
            "ops at a time": threading.get_inter_op_parallelism_threads(),
            "deterministic ops": determinism_is_asked_for(),
            "TF32": tf.config.experimental.tensor_float_32_execution_enabled(),
        }
        for name in ("keras", "tf_keras"):
            if name in sys.modules:
                precision = sys.modules[name].mixed_precision
                # The function has different names in Keras 3 and Keras 2; for older scripts, Keras 2 is "keras".
                ask = getattr(precision, "dtype_policy", None) or precision.global_policy
                found[f"{name} policy"] = str(ask().name)
        gpus = tf.config.list_physical_devices("GPU") if on_device else []
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            built = tf.sysconfig.get_build_info()
            found |= {
                "device": str(details.get("device_name", "gpu")),  # with a MIG device's profile
                "device capability": ".".join(map(str, details.get("compute_capability", ()))),
                "CUDA": str(built.get("cuda_version", "")),
                "cuDNN": str(built.get("cudnn_version", "")),
            }
        return found

    def versions(self) -> dict[str, str]:
        import tensorflow as tf

        found = super().versions() | {"tensorflow": tf.__version__}
        return found | {name: sys.modules[name].__version__ for name in ("keras", "tf_keras") if name in sys.modules}


FRAMEWORK = TensorFlow()


def lacks_determinism(error: Exception) -> bool:
    """Whether ``error`` was raised because an op has no deterministic kernel."""
    return determinism_is_asked_for() and "determinis" in str(error).lower()


def op_that_raised(error: Exception) -> str:
    """Name of the op in the user's model, or the first line of the error if the error names no op."""
    node = getattr(error, "node_def", None)
    return str(node.name) if node is not None else str(error).strip().partition("\n")[0][:200]


def give_up_determinism() -> None:
    """From now on, ops need not be deterministic."""
    from tensorflow.python.framework import config  # private: there is no public way to switch determinism off

    config.disable_op_determinism()


def determinism_is_asked_for() -> bool:
    """Whether TensorFlow must refuse ops that are not deterministic."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())
