"""TensorFlow before there is a model: imports, threads, determinism, seeds. Room: runners; TensorFlow."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from edt_runner import context, environment
from edt_runner.computing import of_machine
from edt_runner.tensorflow import determinism, keras2_hint, keras2_name


class TensorFlow:
    """See ``Framework``. TensorFlow is imported by its methods: a supervisor chooses by name before it warms up."""

    name = "tensorflow"

    def warm(self) -> None:
        import safetensors.torch  # noqa: F401 - imported for its children
        import torch
        import torch.distributed
        import torch.utils.data  # noqa: F401

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # what it says of itself is no user's concern
        import tensorflow  # noqa: F401

        importlib.import_module("tf_keras" if environment.keras2() else "keras")
        importlib.import_module("edt_runner.play")  # what user code calls; the supervisor itself uses none of it
        importlib.import_module("edt_runner.tensorflow.trainable")

    def enter(self, threads: int, seed: int) -> None:
        """Threads of one op are ``threads``; ops run one after another, so that sums have one order."""
        import tensorflow as tf
        import torch

        torch.set_num_threads(threads)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.experimental.enable_op_determinism()
        self.seed(seed)
        if environment.keras2():  # dropout and its like then draw from generators that a step can set
            importlib.import_module("tf_keras").backend.experimental.enable_tf_random_generator()
        role = context.current()
        # A driver that came by itself is a process of the user's own, where ``keras`` is what is installed.
        if environment.keras2() and role is not None and role.letter.driver != "external":
            keras2_name.call_it_keras()

    def seed(self, seed: int) -> None:
        import tensorflow as tf
        import torch

        torch.manual_seed(seed)
        tf.random.set_seed(seed)

    def gpus(self) -> int:
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))

    def explain(self, error: BaseException) -> str | None:
        return keras2_hint.hint(error)

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        import tensorflow as tf
        import torch

        threading = tf.config.threading
        found = {
            **of_machine(),
            **self.versions(),
            "framework": self.name,
            "CPU capability": torch.backends.cpu.get_cpu_capability(),
            "threads": threading.get_intra_op_parallelism_threads(),
            "ops at a time": threading.get_inter_op_parallelism_threads(),
            "deterministic ops": determinism.is_asked_for(),
            "TF32": tf.config.experimental.tensor_float_32_execution_enabled(),
            "device": "cpu",
        }
        for name in ("keras", "tf_keras"):
            if name in sys.modules:
                precision = sys.modules[name].mixed_precision
                # Keras 3 and Keras 2 name it differently, and older scripts find Keras 2 under the name "keras".
                ask = getattr(precision, "dtype_policy", None) or precision.global_policy
                found[f"{name} policy"] = str(ask().name)
        gpus = tf.config.list_physical_devices("GPU") if on_device else []
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            found |= {
                "device": str(details.get("device_name", "gpu")),
                "device capability": ".".join(map(str, details.get("compute_capability", ()))),
            }
        return found

    def versions(self) -> dict[str, str]:
        import tensorflow as tf
        import torch

        found = {"tensorflow": tf.__version__, "torch": torch.__version__}
        return found | {name: sys.modules[name].__version__ for name in ("keras", "tf_keras") if name in sys.modules}


FRAMEWORK = TensorFlow()
