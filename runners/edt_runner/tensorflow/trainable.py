"""A Keras user's model, compiled with its loss, optimizer and metrics. Room: runners; TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edt_runner.framework import Framework
from edt_runner.tensorflow import nested
from edt_runner.tensorflow.adapter import TensorFlowAdapter
from edt_runner.tensorflow.framework import FRAMEWORK
from edt_runner.tensorflow.generation import Generation
from edt_runner.tensorflow.samples import TensorFlowSamples
from edt_runner.tensorflow.variables import role_of
from edt_runner.trainable import Collate, Samples


@dataclass(frozen=True)
class KerasTrainable:
    """See ``Trainable``; ``fabric_model`` has checked what it is made of."""

    keras: Generation
    model: Any
    """Compiled; not yet built, perhaps: then it has no parameters before there is an adapter."""

    @property
    def framework(self) -> Framework:
        return FRAMEWORK

    @property
    def optimizer_name(self) -> str:
        return type(self.model.optimizer).__qualname__

    @property
    def optimizer(self) -> Any:
        return self.model.optimizer

    def parts(self) -> list[Any]:
        variables = [*self.model.variables, *self.keras.optimizer_variables(self.optimizer)]
        return [self.model, self.optimizer, *_layers(self.model), *variables, *map(self.keras.value, variables)]

    def parameters(self) -> list[list[Any]]:
        named = ((role_of(self.keras, weight), self.keras.value(weight)) for weight in self.model.weights)
        return [[role, variable.dtype.name, variable.shape.as_list()] for role, variable in named]

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        return TensorFlowSamples(train, test, seed, collate)

    def adapter(self, samples: Samples, *, on_device: bool) -> TensorFlowAdapter:
        """The model stands where TensorFlow has put it: on the GPU, if this process sees one."""
        probe = samples.probe_batch(2)
        whole_batches = len(next(iter(nested.leaves(probe)))) > 2
        return TensorFlowAdapter(self.keras, self.model, probe, by_rows=whole_batches)

    def finish(self) -> None:
        self.keras.finish(self.model)


def _layers(model: Any) -> Iterator[Any]:
    """All of a model, those inside of others included."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)
