"""The FabricModel class, with WMLA's constructor and train(). ``edt_runner.launch.train`` runs the training."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edt_runner.errors import UsageError
from edt_runner.frameworks.trainable import Trainable
from edt_runner.launch.train import train, trained_files
from edt_runner.lr_scaling import rules
from edt_runner.training import TrainRequest
from fabric_model import arguments, loggers, user_callbacks

if TYPE_CHECKING:
    from edt_runner.frameworks.pytorch.user_steps import UserSteps


class FabricModel:
    """A PyTorch or Keras model with its data, loss and optimizer.

    Args:
        model: a ``torch.nn.Module`` or a ``keras.Model``.
        datasets_function: a function without arguments. It returns (train, test), map-style data sets of (inputs,
            targets); test may be None. Every process of a job calls it, so it must return the same data in each. With
            Keras, inputs and targets are scalars, arrays, or dicts and tuples of them; Keras sequences, whose items
            are batches, are accepted too.
        loss_function: PyTorch: (outputs, targets) -> mean loss, a scalar tensor, such as ``F.cross_entropy``. Keras:
            whatever ``compile(loss=…)`` takes; the ``loss_weights`` that the model was compiled with are used. In
            both, a step's loss is the mean over its micro-batches, weighted by rows; a loss that is a sum is therefore
            divided by E.
        optimizer: PyTorch: a ``torch.optim.Optimizer`` over the model's parameters. Keras: an optimizer or the name
            of one; its learning rate may be a schedule.
        metrics: PyTorch: functions (outputs, targets) -> mean over the batch, which are named by their ``__name__``.
            None: accuracy, if the outputs are class scores. Keras: whatever ``compile(metrics=…)`` takes.
        worker_logger_callback: a ``callbacks.LoggerCallback``, called in each engine with that engine's own values.
        driver_logger_callback: called in the driver with means over all engines; None: WMLA's log lines are written.
        save_to_onnx, enable_onnx: accepted; this release writes no ONNX file, and the job's log says so.
        keras_custom_objects: name -> a user's own class or function, which Keras can then find by this name.
        fn_batch_collate: list of samples -> batch; None: samples are stacked.
        user_callback: a ``callbacks.Callback`` or a list of them. Every engine runs their hooks at the boundaries of
            epochs. With Keras, also ``keras.callbacks``, except those that need each batch or write files.
        worker_logger, driver_logger: loggers of WMLA 1.2.x, with ``log_train_metrics(loss, acc, completed_batch,
            worker)`` and ``log_test_metrics`` with the same parameters; acc is in percent.
        fn_step_train: PyTorch: a function (model, data, eva, train_loader, fn_args) -> (acc, loss) that computes one
            micro-batch: ``model.get_optimizer().zero_grad()``, forward pass, ``model.get_loss_function()``, backward
            pass. It takes no optimizer step: the platform adds up the gradients of all micro-batches, as without the
            function, and takes the step. ``data`` is (inputs, targets) on the engine's device; ``eva(outputs,
            targets)`` is the accuracy in percent, and so is ``acc``; ``train_loader`` has a length and a ``dataset``;
            ``fn_args`` is an empty dict. None: forward pass, loss, backward pass.
        fn_test: PyTorch: a function (model, test_iter, fn_args) -> loss. Engines share a validation, so each calls it
            once for each of its micro-batches: ``test_iter`` then has one (inputs, targets). The losses are averaged,
            weighted by samples. The accuracy is that of what the model returned. The function runs in evaluation mode
            and without gradients.
        scaleup_function: accepted and never called, since the scheduler decides how many engines there are; the job's
            log says so.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes.
    """

    def __init__(
        self,
        model: Any,
        datasets_function: Callable[[], tuple[Any, Any]],
        loss_function: Any,
        optimizer: Any,
        metrics: Sequence[Any] | Mapping[str, Any] | None = None,
        worker_logger_callback: Any = None,
        driver_logger_callback: Any = None,
        save_to_onnx: bool = False,
        keras_custom_objects: Mapping[str, Any] | None = None,
        fn_batch_collate: Callable[[list[Any]], Any] | None = None,
        *,
        user_callback: Any = None,
        worker_logger: Any = None,
        driver_logger: Any = None,
        enable_onnx: bool = False,
        fn_step_train: Callable[..., Any] | None = None,
        fn_test: Callable[..., Any] | None = None,
        scaleup_function: Callable[[int, int], int] | None = None,
    ) -> None:
        side = _side_of(model)
        arguments.check_callable("datasets_function", datasets_function)
        self._worker_logger = loggers.chosen(
            "worker_logger", worker_logger, "worker_logger_callback", worker_logger_callback
        )
        self._driver_logger = loggers.chosen(
            "driver_logger", driver_logger, "driver_logger_callback", driver_logger_callback
        )
        if scaleup_function is not None:
            arguments.check_callable("scaleup_function", scaleup_function)
        if fn_batch_collate is not None:
            arguments.check_callable("fn_batch_collate", fn_batch_collate)
        self.model = model
        self._datasets_function = datasets_function
        self._trainable = cast(
            Trainable, side.trainable(model, loss_function, optimizer, metrics, keras_custom_objects)
        )
        self._steps: UserSteps | None = None
        if fn_step_train is not None or fn_test is not None:
            if not hasattr(side, "with_steps"):
                name = "fn_test" if fn_step_train is None else "fn_step_train"
                raise UsageError(f"{name}: got a value, takes None: the model is a keras.Model")
            self._trainable, self._steps = side.with_steps(self._trainable, fn_step_train, fn_test, metrics)
        self._collate = fn_batch_collate
        self._notes = arguments.without_effect(
            {"enable_onnx": enable_onnx, "save_to_onnx": save_to_onnx, "scaleup_function": scaleup_function}
        )
        self._callbacks = user_callbacks.attached(user_callback, keras=self._trainable.framework.name == "tensorflow")

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        num_dataloader_threads: int = 0,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        *,
        seed: int | None = None,
        reduction: str = "exact",
        recovery_interval: float = 10.0,
        batch_scaling: str = "fixed",
        lr_rule: Any = None,
        compare_interval: int | None = None,
        on_mismatch: str = "mark",
        require_exact: bool = False,
        worker_num: int | None = None,
        worker_device_num: int | None = None,
        worker_memory: str | None = None,
        driver_memory: str | None = None,
        hardware_spec: Any = None,
    ) -> None:
        """Train the model; afterwards ``self.model`` holds the trained weights. In an engine the call never returns.

        Args:
            epoch_number: passes over the training set.
            batch_size: samples of one micro-batch, the most that a GPU holds at a time.
            engines_number: E, the number of micro-batches of one step, and the most engines that can share a step. The
                global batch is E x batch_size, whatever the number of engines is.
            num_dataloader_threads: loader processes per engine; 0: the engine itself loads.
            validation_freq: epochs between two validations; 0: never validate.
            checkpoint_freq: epochs between two writings of the user's model files; 0: write only the final ones.
            effective_batch_size: samples of the global batch. Without engines_number, E is effective_batch_size /
                batch_size; with it, the larger E is used. With neither of them, E is the number of slots offered.
            seed: seed of shuffling, augmentation and dropout; None: the job's seed.
            reduction: "exact": the result does not depend on the number of engines, bit for bit; "fast": plain
                all-reduce.
            recovery_interval: seconds between two recovery checkpoints, which engines write in the background. If all
                engines are lost at once, about as many seconds of training are repeated. The user's files follow
                ``checkpoint_freq`` instead.
            batch_scaling: "fixed": the global batch is always E x batch_size. "per_engine": the global batch follows
                the number of engines W and is W x batch_size, with one micro-batch per engine; W is at most the number
                of slots offered. Steps are then counted in micro-batches; an epoch has the same number of these
                whatever W is. The result then depends on when engines came and went, but on nothing else: the same
                history gives the same bits. ``engines_number`` or ``effective_batch_size`` then set the batch that the
                learning rate was chosen for, the reference of ``lr_rule``; with neither, it is one micro-batch.
            lr_rule: how the learning rate follows the batch: a name ("linear", "root", "linear-warmup", "adam-sqrt",
                "legw", "adascale", …), a rule of ``edt_runner.lr_scaling.rules`` or a function (batch, reference) ->
                factor, both in samples. None: the learning rate does not follow the batch. With a rule, batch,
                learning_rate and gradient_noise_scale (and gain) are logged beside loss and metrics.
            compare_interval: how often all engines compare, by checksums, what they hold (weights, buffers, optimizer
                state and settings). None: after each join, at the end, and at ends of epochs, as many as cost less
                than 1 % of the time. n: after each join, every n training steps, and at the end. 0: never.
            on_mismatch: what happens if engines differ. The result is then marked "not exact", with the first
                difference. "mark": all engines take the first engine's state and settings, and the training
                continues. "stop": the training ends with an error. "restore": all engines go back to the newest
                checkpoint at which they were equal; if they differ a second time, the training ends with an error.
            require_exact: True: whatever ends the guarantee of an exact result also ends the training, with an error
                that names it: an op or a buffer that is not deterministic, replicas that differ (whatever
                ``on_mismatch`` is), or a checkpoint of a machine of another kind. An engine that is unlike the others
                does not join. False: the result is marked "not exact", and the training continues.
            worker_num, worker_device_num: their product is E if ``engines_number`` is None.
            worker_memory, driver_memory, hardware_spec: accepted without effect, because the job already runs with
                what it was submitted with; its log says so.

        Raises:
            UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes. Or
                the job, the data sets or the script do something that a training by several engines cannot support.
            RunnerError: the training has ended with an error; the engine's log has its full text.
        """
        arguments.check_count("epoch_number", epoch_number, least=1)
        arguments.check_count("batch_size", batch_size, least=1)
        arguments.check_count("num_dataloader_threads", num_dataloader_threads, least=0)
        arguments.check_count("validation_freq", validation_freq, least=0)
        arguments.check_count("checkpoint_freq", checkpoint_freq, least=0)
        if seed is not None:
            arguments.check_count("seed", seed, least=0)
        arguments.check_seconds("recovery_interval", recovery_interval)
        if batch_scaling not in ("fixed", "per_engine"):
            raise arguments.usage("batch_scaling", batch_scaling, "'fixed' or 'per_engine'")
        arguments.comparing(compare_interval, on_mismatch, require_exact, reduction)
        engines_number = arguments.engines(engines_number, worker_num, worker_device_num)
        resources = {"worker_memory": worker_memory, "driver_memory": driver_memory, "hardware_spec": hardware_spec}
        if self._steps is not None:
            self._steps.batch_size = batch_size
        train(
            TrainRequest(
                trainable=self._trainable,
                datasets_function=self._datasets_function,
                worker_logger=self._worker_logger,
                driver_logger=self._driver_logger,
                collate=self._collate,
                epochs=epoch_number,
                batch_size=batch_size,
                micro_batches=arguments.micro_batches(
                    engines_number,
                    effective_batch_size if batch_scaling == "fixed" else None,
                    batch_size,
                ),
                loader_processes=num_dataloader_threads,
                validation_freq=validation_freq,
                checkpoint_freq=checkpoint_freq,
                seed=seed,
                exact=reduction == "exact",
                recovery_interval=float(recovery_interval),
                callbacks=self._callbacks,
                batch_scaling=batch_scaling,
                lr_rule=None if lr_rule is None else rules.by_name(lr_rule),
                reference_batch=arguments.reference_batch(engines_number, effective_batch_size, batch_size),
                compare_interval=compare_interval,
                on_mismatch=on_mismatch,
                require_exact=require_exact,
                notes=[*self._notes, *arguments.without_effect(resources)],
            )
        )
        self._trainable.finish()

    def download(self, out_dir: str | os.PathLike[str] = ".") -> Path:
        """Pack the folder with the trained model's files into ``<out_dir>/<job>.zip``, and print where it is.

        Args:
            out_dir: the folder that the file is written to; it is made if there is none.

        Returns:
            The file.

        Raises:
            UsageError: the model has not been trained by ``train()`` in this process.
        """
        folder = trained_files()
        if folder is None:
            raise UsageError("download(): called before train(), takes a trained model")
        Path(out_dir).mkdir(parents=True, exist_ok=True)
        name = os.environ.get("DLI_EXECID") or Path(sys.argv[0]).stem
        path = Path(shutil.make_archive(str(Path(out_dir) / name), "zip", folder))
        print(f"Save model:  {path}")
        return path


_SIDES = (
    ("keras", "Model", "fabric_model.keras"),
    ("tf_keras", "Model", "fabric_model.keras"),
    ("torch.nn", "Module", "fabric_model.pytorch"),
)
"""(package, class of models, module that checks such models). Keras comes first, because with PyTorch as its backend
its models are also torch modules."""


def _side_of(model: Any) -> Any:
    """The module that checks models of this kind. This imports no framework that the user has not imported."""
    for package, name, side in _SIDES:
        loaded = sys.modules.get(package)
        if loaded is not None and isinstance(model, getattr(loaded, name, ())):
            return importlib.import_module(side)
    raise arguments.usage("model", model, "a torch.nn.Module or a keras.Model")
