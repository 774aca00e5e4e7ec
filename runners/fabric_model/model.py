"""The FabricModel class, with WMLA's constructor and train(). ``edt_runner.launch.train`` runs the training."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from edt_runner.callbacks import watching
from edt_runner.errors import UsageError
from edt_runner.frameworks import computing, onnx_export
from edt_runner.frameworks.trainable import Trainable
from edt_runner.launch.train import train, trained_files
from edt_runner.lr_scaling import rules
from edt_runner.training import TrainRequest
from fabric_model import arguments, loggers, user_callbacks


class FabricModel:
    """A PyTorch or Keras model with its data, loss and optimizer.

    Args:
        model: a ``torch.nn.Module`` or a ``keras.Model``. A ``train_step`` or ``test_step`` of a Keras model's own
            class computes one micro-batch. It calls ``self.optimizer.apply`` once, which only keeps the gradients: the
            platform adds up those of all micro-batches and takes the step. It returns "loss" and other numbers by
            name: metrics of the model, or means over the micro-batch.
        datasets_function: a function without arguments. It returns (train, test), map-style data sets of (inputs,
            targets); test may be None. Every process of a job calls it, so it must return the same data in each. With
            Keras, inputs and targets are scalars, arrays, or dicts and tuples of them; Keras sequences, whose items
            are batches, are accepted too, and a ``tf.data.Dataset`` of known length and of at most 1 GiB, which is
            read into memory once; its batches are taken apart.
        loss_function: PyTorch: (outputs, targets) -> loss, a scalar tensor, such as ``F.cross_entropy``; None: the
            model returns its own loss, as models of ``transformers`` do when a batch has labels. Keras: whatever
            ``compile(loss=…)`` takes; the ``loss_weights`` that the model was compiled with are used. With
            ``reduction="sum"`` in all losses, gradients of micro-batches are added up, sum(g_i), and the loss that is
            shown is that of a sample; with any mean they are sum(n_i g_i) / sum(n_i), with n_i samples. None: the
            class of the model has a ``train_step`` of its own that needs no loss.
        optimizer: PyTorch: a ``torch.optim.Optimizer`` over the model's parameters, or a list of several, which all
            take each step. Keras: an optimizer or the name of one; its learning rate may be a schedule.
        metrics: PyTorch: functions (outputs, targets) -> mean over the batch, or None where the batch has no such
            mean; they are named by their ``__name__``. Or metrics of ``torchmetrics`` whose states add up, or a dict
            of name -> either. None: accuracy, if the outputs are class scores. Keras: whatever
            ``compile(metrics=…)`` takes.
        worker_logger_callback: a ``callbacks.LoggerCallback``, called in each engine with that engine's own values.
        driver_logger_callback: called in the driver with means over all engines; None: WMLA's log lines are written.
        save_to_onnx, enable_onnx: True: after the training, the model is also written as ``model.onnx`` beside its
            other files, with a dynamic batch dimension, and what onnxruntime computes with the file is compared with
            the model. It needs the packages of ``pip install openedt[onnx]``. If there is no file in the end, the job's
            log and its message say why, and the job ends as FINISHED all the same.
        keras_custom_objects: name -> a user's own class or function, which Keras can then find by this name, in every
            process of the training. Elsewhere ``keras.models.load_model`` takes the same dict as ``custom_objects``.
        fn_batch_collate: list of samples -> batch; None: samples are stacked.
        user_callback: a ``callbacks.Callback`` or a list of them. Every engine runs their hooks at the boundaries of
            epochs, and ``on_train_batch_begin``, ``on_train_batch_end`` and those of test batches between two steps,
            with the number of the step and means over all engines and over the epoch so far. With Keras, also
            ``keras.callbacks``, except those that write files.
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
        training_step: PyTorch: a function (model, batch) -> loss, or -> {"loss": …, metric: …}, for whatever
            ``loss_function`` cannot say. It computes one micro-batch, whose mean loss it returns; the platform calls
            ``backward()``, adds up the gradients and takes the step. A function that has called ``backward()`` itself,
            for example for each of two losses, returns a loss that is detached. Metrics are means over the
            micro-batch.
        validation_step: PyTorch: the same for a micro-batch of the test set, in evaluation mode and without gradients.
            None: ``training_step``, if there is one.
        loss_reduction: what the loss of a micro-batch is. "sample": the mean over its samples. "token": the
            mean over its tokens, of which samples may have different numbers; ``token_count`` says how many. "sum":
            the sum over its samples. A step's gradient is then, with n_i samples or tokens in micro-batch i and its
            gradient g_i: sum(n_i g_i) / sum(n_i) for the first two, sum(g_i) for the last. So it is the gradient of
            the whole batch, and the number of engines changes nothing. Keras: "token" and "sum" take losses with
            ``reduction="sum"``; with "token" the sum over the step is divided by the sum of its sample weights, which
            are 0 where there is no token.
        token_count: a function batch -> number of tokens that the mean of a micro-batch's loss is over. None: PyTorch:
            the targets that are not -100; for a causal language model of ``transformers``, of all but each row's
            first, because it shifts them. Keras: the sum of the sample weights, or else the number of targets.
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
        training_step: Callable[..., Any] | None = None,
        validation_step: Callable[..., Any] | None = None,
        loss_reduction: str = "sample",
        token_count: Callable[[Any], int] | None = None,
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
        self.model, self._loss_reduction = model, loss_reduction
        self._datasets_function = datasets_function
        self._trainable = cast(
            Trainable,
            side.trainable(
                model,
                optimizer,
                keras_custom_objects,
                computing.Asked(
                    loss_function,
                    metrics,
                    training_step=training_step,
                    validation_step=validation_step,
                    fn_step_train=fn_step_train,
                    fn_test=fn_test,
                    loss_reduction=loss_reduction,
                    token_count=token_count,
                ),
            ),
        )
        self._collate = fn_batch_collate
        self._onnx = onnx_export.asked(save_to_onnx=save_to_onnx, enable_onnx=enable_onnx)
        self._notes = [
            *arguments.without_effect({"scaleup_function": scaleup_function}),
            *onnx_export.missing(self._onnx, self._trainable.framework.name),
        ]
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
        audit_interval: int | None = None,
        on_mismatch: str = "mark",
        require_exact: bool = False,
        lr_scheduler: Any = None,
        lr_scheduler_interval: str = "epoch",
        lr_scheduler_metric: str = "val_loss",
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        precision: str = "fp32",
        compile: bool = False,  # noqa: A002 - Keras and Lightning call it so
        on_nonfinite: str = "stop",
        early_stopping: int | Mapping[str, Any] | None = None,
        keep_best: tuple[str, str] | str | None = None,
        keep_last: int | None = None,
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
            audit_interval: how often a second engine computes a random micro-batch, too, to find processors and
                memories that compute wrong. None: once a minute; n: every n training steps; 0: never. If the bits
                differ, the engine that computes wrong is named, with its node and slot, in the job's history, and the
                step is computed again. Only trainings on several engines are audited.
            on_mismatch: what happens if engines differ. The result is then marked "not exact", with the first
                difference. "mark": all engines take the first engine's state and settings, and the training
                continues. "stop": the training ends with an error. "restore": all engines go back to the newest
                checkpoint at which they were equal; if they differ a second time, the training ends with an error.
            require_exact: True: whatever ends the guarantee of an exact result also ends the training, with an error
                that names it: an op or a buffer that is not deterministic, replicas that differ (whatever
                ``on_mismatch`` is), or a checkpoint of a machine of another kind. An engine that is unlike the others
                does not join. False: the result is marked "not exact", and the training continues.
            lr_scheduler: moves the learning rate. PyTorch: a scheduler of ``torch.optim.lr_scheduler`` that was made
                with the optimizer, a function that makes one of it, or a list of these. Keras: a
                ``LearningRateSchedule``, which becomes the optimizer's learning rate; a function (epoch, learning
                rate) -> learning rate; or ``LearningRateScheduler`` or ``ReduceLROnPlateau``. Its state travels with
                the training's. A scheduler that the script moves itself, from a hook of the optimizer or in a
                callback, is found and travels, too.
            lr_scheduler_interval: "epoch": it moves at each epoch's end, after the validation. "step": after each step.
                Keras: "step" for a ``LearningRateSchedule``, which counts steps, "epoch" for all else.
            lr_scheduler_metric: the metric that a scheduler such as ``ReduceLROnPlateau`` gets at each epoch's end. If
                that epoch had no validation, the scheduler does not move. Keras: the callback's ``monitor`` says it.
            clip_grad_norm: the most L2 norm of a step's gradient; clipping acts on the sum over all engines.
            clip_grad_value: the most absolute value of each number of that gradient. With both, the norm is clipped
                first. Keras: ``clipnorm``, ``global_clipnorm`` and ``clipvalue`` of the optimizer act on the same
                gradient, after these.
            precision: "fp32"; "bf16" or "fp16": forward pass and loss run under ``torch.autocast``. With "fp16" the
                loss is scaled; a step whose gradient overflows is left out by all engines, and no scheduler moves.
                Keras: "fp32" is whatever the model was built with; "bf16" and "fp16" are accepted for models that
                were built after ``keras.mixed_precision.set_global_policy("mixed_bfloat16")`` or "mixed_float16".
            compile: PyTorch: compile the model by ``torch.compile`` with fixed shapes. Keras: XLA compiles the
                passes.
            on_nonfinite: what happens if a step's loss or gradient is infinite or NaN. "stop": the training ends with
                an error that says where, and the state before that step is kept as a checkpoint. "skip": the step is
                left out. "continue": the step is taken.
            early_stopping: end the training if a metric of the validations has not improved for a number of them: that
                number, or a dict of "patience", "metric" ("val_loss"), "mode" ("min" or "max"; by default as the
                metric's name says) and "min_delta" (0).
            keep_best: (metric, "min" or "max"), or the metric's name: the model files of the epoch with the best value
                are kept as ``model_best``.
            keep_last: keep only so many of the newest files of epochs; None: all.
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
        arguments.auditing(audit_interval)
        engines_number = arguments.engines(engines_number, worker_num, worker_device_num)
        resources = {"worker_memory": worker_memory, "driver_memory": driver_memory, "hardware_spec": hardware_spec}
        if on_nonfinite not in ("stop", "skip", "continue"):
            raise arguments.usage("on_nonfinite", on_nonfinite, "'stop', 'skip' or 'continue'")
        if keep_last is not None:
            arguments.check_count("keep_last", keep_last, least=1)
        options = arguments.step_options(
            lr_scheduler,
            lr_scheduler_interval,
            lr_scheduler_metric,
            clip_grad_norm=clip_grad_norm,
            clip_grad_value=clip_grad_value,
            precision=precision,
            compile=compile,
        )
        if lr_rule is not None and self._loss_reduction == "sum":
            raise UsageError(
                "lr_rule: got a rule with loss_reduction='sum', whose gradient grows with the batch already; takes "
                "None with it, or 'sample'"
            )
        watched = watching.watchers(early_stopping, keep_best)
        if watched and not validation_freq:
            raise arguments.usage("validation_freq", validation_freq, "1 or more with early_stopping or keep_best")
        training = train(
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
                audit_interval=audit_interval,
                on_mismatch=on_mismatch,
                require_exact=require_exact,
                options=self._trainable.checked_options(options),
                on_nonfinite=on_nonfinite,
                watched=watched,
                keep_last=keep_last,
                notes=[*self._notes, *arguments.without_effect(resources)],
            )
        )
        self._trainable.finish()
        files = trained_files()
        if self._onnx and files is not None:
            onnx_export.write(self._onnx, self._trainable, training.samples, files / "train")

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
