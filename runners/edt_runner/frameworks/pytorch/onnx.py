"""Writes a trained PyTorch model as ONNX, by ``torch.onnx.export``.

How the model is called is seen, not guessed: the adapter evaluates a batch, and the arguments of the model's first call
are kept. So a batch may have any nesting, and a step may be the user's own function. The file has one input for each
tensor in these arguments, and one output for each tensor in what the model returns; whatever else it returns, such as
the caches of a language model, is left out. Targets by name (``labels``) are no inputs if the model can do without.

A dimension is dynamic if it differs between two batches: the batch in any case, and lengths to which the user pads.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from edt_runner.errors import RunnerError
from edt_runner.frameworks.onnx_export import DATA, FILE, SIZES, Array, Example
from edt_runner.frameworks.pytorch.batches import TARGET_NAMES, call_of, is_record
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.frameworks.trainable import Samples
from edt_runner.schedule import StepKind

PACKAGES = ("onnxscript",)
_ONE_FILE = 1 << 30
"""Most bytes of weights in ``FILE`` itself. A file of protobuf has at most 2 GiB."""


class Call(NamedTuple):
    """The arguments of one call of the model."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


def export(trainable: TorchTrainable, samples: Samples, folder: Path) -> list[Example]:
    """Write the model. See ``onnx_export.Exporter``."""
    model = trainable.model
    with _evaluating(model):
        calls = [_as_called(model, call) for call in _calls(trainable, samples)]
        tensors = [_inputs(model, call) for call in calls]
        outputs = [_outputs(_result(model, call)) for call in calls]
        if not outputs[0]:
            raise RunnerError("the model returns no tensor")
        if not tensors[0] or any(list(each) != list(tensors[0]) for each in tensors):
            raise RunnerError("the model is not called with the same tensors for every batch")
        _write(model, calls[0], tensors, list(outputs[0]), folder)
    half = any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in model.parameters())
    return [Example(_to_numpy(given), _to_numpy(found), half) for given, found in zip(tensors, outputs, strict=True)]


# ── how the model is called ───────────────────────────────────────────────────────────────────────────────────────
def _calls(trainable: TorchTrainable, samples: Samples) -> list[Call]:
    """The model's calls for batches of ``SIZES`` samples of the training set."""
    model = trainable.model
    adapter = trainable.adapter(samples, on_device=False)  # not compiled, in full precision
    local = torch.empty(adapter.size(StepKind.VALIDATE), dtype=adapter.dtype)
    found, begin = [], 0
    for size in SIZES:
        batch = samples.batch(True, 0, [index % samples.train_units for index in range(begin, begin + size)])
        begin += size
        seen: list[Call] = []
        hook = model.register_forward_pre_hook(_noting(seen), with_kwargs=True, prepend=True)
        try:
            with contextlib.suppress(Exception), torch.compiler.set_stance("force_eager"):
                adapter.evaluate(batch, size, 0, local)  # the loss may need what only a training has
        finally:
            hook.remove()
        if not seen:  # the user's own test does not call the model
            call = call_of(model, batch, keeps_targets=False)
            seen.append(Call(call.positional, call.named))
        found.append(seen[0])
    return found


def _noting(seen: list[Call]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(Call(positional, dict(named)))

    return note


def _as_called(model: nn.Module, call: Call) -> Call:
    """The call without its targets, if the model takes it. Whoever uses the file has none."""
    rest = {name: value for name, value in call.named.items() if not _is_target(name)}
    if len(rest) < len(call.named) and (rest or call.positional):
        without = Call(call.positional, rest)
        with contextlib.suppress(Exception):
            if _outputs(_result(model, without)):
                return without
    return call


def _is_target(name: str) -> bool:
    return name in TARGET_NAMES or "label" in name or name in ("start_positions", "end_positions")


def _result(model: nn.Module, call: Call) -> Any:
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        try:
            return model(*call.positional, **call.named)
        except Exception as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in _inputs(model, call).values())
            raise RunnerError(
                f"the trained model itself does not compute inputs of {shapes}: {_line(error)}"
            ) from error


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Set the model and each part of it to evaluation mode, and afterwards to the modes before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# ── tensors inside nested values ──────────────────────────────────────────────────────────────────────────────────
def _parts(value: Any) -> list[tuple[str, Any]]:
    """(name, part) of everything directly inside a mapping, a sequence or a dataclass; empty for other objects."""
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [
            (str(name), part) for name, part in zip(getattr(value, "_fields", range(len(value))), value, strict=True)
        ]
    return [(field.name, getattr(value, field.name)) for field in fields(value)] if is_record(value) else []


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with ``change(tensor)`` in place of each tensor, in the order of ``_parts``."""
    if isinstance(value, Tensor):
        return change(value)
    parts = [_mapped(part, change) for _, part in _parts(value)]
    if isinstance(value, Mapping):
        found = dict(zip(value, parts, strict=True))
        if type(value) is dict or not hasattr(value, "copy"):
            return found
        again: Any = value.copy()  # such as BatchEncoding, which has more than its keys
        again.update(found)
        return again
    if isinstance(value, list | tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_record(value):
        return replace(value, **{field.name: part for field, part in zip(fields(value), parts, strict=True)})
    return value


def _named(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """(names of the parts that lead to it, tensor) of each tensor, in the order of ``_parts``."""
    if isinstance(value, Tensor):
        yield path, value
    for name, part in _parts(value):
        yield from _named(part, (*path, name))


def _tensors(value: Any, single: str) -> dict[str, Tensor]:
    """The tensors inside a value by name, in order. ``single`` names those whose path has no name."""
    found: dict[str, Tensor] = {}
    for path, tensor in _named(value):
        name = re.sub(r"\W", "_", "_".join(path))
        name = name if name and not name[0].isdigit() else "_".join(filter(None, (single, name)))
        while name in found:
            name += "_"
        found[name] = tensor
    return found


def _inputs(model: nn.Module, call: Call) -> dict[str, Tensor]:
    """The call's tensors by name, in the order in which ``_mapped`` finds them."""
    taken = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in _BY_PLACE]
    names = [*taken, *(f"input_{place}" for place in range(len(taken), len(call.positional)))]
    return _tensors({**dict(zip(names, call.positional, strict=False)), **call.named}, "input")


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _outputs(returned: Any) -> dict[str, Tensor]:
    return _tensors(returned, "output")


def _to_numpy(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """The tensors as arrays, which are copies, since the model may write into its tensors later. NumPy has no type
    bfloat16; these become float32."""
    found = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
    return {name: np.array(t.float() if t.dtype is torch.bfloat16 else t) for name, t in found.items()}


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────
class _Flat(nn.Module):
    """The model as a function of tensors alone, which returns tensors alone."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model, self._call = model, call

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        left = iter(tensors)
        positional, named = _mapped(tuple(self._call), lambda _: next(left))
        return tuple(_outputs(self.model(*positional, **named)).values())


def _write(model: nn.Module, call: Call, tensors: list[dict[str, Tensor]], outputs: list[str], folder: Path) -> None:
    names = list(tensors[0])
    flat = _Flat(model, call)
    flat.training = False
    try:
        program: Any = torch.onnx.export(
            flat,
            tuple(tensors[0].values()),
            input_names=names,
            output_names=outputs,
            dynamic_shapes={"tensors": tuple(_dynamic(tensors))},
            dynamo=True,
            verbose=False,
        )
    except Exception as error:
        raise RunnerError(_reason(error)) from error
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # they quote the user's code and name paths of this machine
    weights = list(program.model.graph.initializers.values())
    for weight in weights:
        weight.name = weight.name.removeprefix("model.")  # as in the model's state_dict
    size = sum(weight.const_value.nbytes for weight in weights)
    onnx_ir: Any = importlib.import_module("onnx_ir")
    onnx_ir.save(program.model, folder / FILE, external_data=DATA if size > _ONE_FILE else None)


def _dynamic(tensors: list[dict[str, Tensor]]) -> Iterator[dict[int, Any]]:
    """For each input its dynamic dimensions: those that differ between the batches. Equal ones share a name."""
    known: dict[tuple[int, ...], Any] = {SIZES: torch.export.Dim("batch")}
    for name, first in tensors[0].items():
        found = {}
        for place in range(first.dim()):
            sizes = tuple(given[name].shape[place] for given in tensors)
            if len(set(sizes)) > 1:
                found[place] = known.setdefault(sizes, torch.export.Dim(f"length_{len(known)}"))
        yield found


def _reason(error: Exception) -> str:
    """Why ``torch.onnx.export`` has failed, in one sentence."""
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    text = str(root)
    if found := re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", text):
        return f"ONNX has no counterpart of the op {found[1].replace('.', '::')}"
    place = re.search(r'\n  File "([^"]+)", line (\d+), in \w+\n    (.+)', text)
    where = f" at {Path(place[1]).name}, line {place[2]}, `{place[3].strip()}`" if place else ""
    if "data-dependent" in text:
        return f"the model decides by the values of its tensors what it computes, which ONNX does not follow{where}"
    return f"torch.onnx.export cannot translate it{where}: {_line(root)}"


def _line(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0][:300].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
