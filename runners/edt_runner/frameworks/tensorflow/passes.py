"""A model's forward and backward pass as TensorFlow graphs, one for each form of batches.

Each pass is two graphs, one inside the other. The inner graph does what Keras's own train_step does, except the
optimizer's step; or it is the model's own train_step (``own_steps``). Tracing it shows which variables a pass changes.
The outer graph sets the seed generators, runs the inner graph, reads the changed variables, and restores all variables.
Between two micro-batches all variables therefore hold the committed values.

A graph is made for the shapes of the first sample, with any number of rows. A batch of other shapes has its own graph,
in which the dimensions that differ are open. Which graph a batch uses depends on the batch alone; otherwise results
would not be exact. The definition of a traced function's graph shows which variables it writes and which random ops it
has, in the functions that it calls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow.gradients import joined
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion
from edt_runner.frameworks.tensorflow.own_steps import OwnSteps
from edt_runner.frameworks.tensorflow.variables import Variables, on_host, sizes_of
from edt_runner.seeds import key_of

_SEED_STATE = "seed_generator_state"


@dataclass(frozen=True)
class Pass:
    """One traced pass.

    ``run(leaves, share, count, seeds)`` takes the batch's arrays, the micro-batch's share of the step, its number of
    samples, and ``seeds``. It returns the gradients of those runs (``gradients``) that have any, and one flat tensor.
    In training that tensor is

        float variables x share | a flag each: changed | integer steps | 1 | count | loss x count | metric states | told

    and in evaluation it is only what follows the 1. ``told`` are value x count and count of each number that a step of
    the model's own returns as a mean, and 0 and 0 if this one does not return it. The loss is not multiplied if it is a
    sum over the samples.
    """

    run: Any
    used: tuple[bool, ...]
    """Of each trainable variable, whether the loss depends on it."""
    present: tuple[bool, ...]
    """Of each run of trainable variables, whether it has gradients."""
    floats: tuple[Any, ...]
    """Floating-point variables that the pass changes."""
    integers: tuple[Any, ...]
    generators: tuple[Any, ...]
    foreign: tuple[str, ...]
    """Names of variables that the pass writes but that do not belong to the model."""
    random: tuple[str, ...]
    """Names of ops that draw from a hidden state."""

    def seeds(self, seed: int) -> Any:
        """The states with which the pass's generators begin, a pure function of ``seed``."""
        keys = [key_of(seed, index) for index in range(len(self.generators))]
        return np.array([[key & 0x7FFFFFFF, key >> 32 & 0x7FFFFFFF] for key in keys], np.int64).reshape(-1, 2)


class Passes:
    """Traces passes over batches of given shapes.

    Args:
        keras: the model's version of Keras.
        model: the compiled model.
        variables: the model's variables.
        own: the model's own steps, which have been traced once.
        dtype: TensorFlow's type of flat vectors.
        jit: whether XLA compiles the inner graphs.
        sums: whether the loss of a micro-batch is a sum over its samples, and not a mean.
    """

    def __init__(
        self, keras: KerasVersion, model: Any, variables: Variables, own: OwnSteps, dtype: Any, *, jit: bool, sums: bool
    ) -> None:
        self._keras, self._model, self._variables, self._dtype = keras, model, variables, dtype
        self._own, self._jit, self._sums = own, jit, sums

    def train(self, signature: Any) -> Pass:
        """Trace a training pass. ``signature`` is a batch of ``tf.TensorSpec``.

        Raises:
            UsageError: a train_step of the model's own does what several engines cannot compute together.
        """
        used: list[bool] = []

        def forward_and_backward(x: Any, y: Any = None, weights: Any = None) -> Any:
            with tf.GradientTape() as tape:
                outputs, loss = self._forward(x, y, weights, training=True)
                scaled = self._keras.scale_loss(self._model.optimizer, loss)
            gradients = tape.gradient(scaled, self._variables.trainable)
            self._model.compute_metrics(x, y, outputs, weights)
            used[:] = [gradient is not None for gradient in gradients]
            return loss, [tf.convert_to_tensor(g) for g in gradients if g is not None], self._told({})

        def own_step(*batch: Any) -> Any:
            loss, by_variable, told = self._own.train(batch)
            used[:] = [id(variable) in by_variable for variable in self._variables.trainable]
            gradients = [by_variable[id(v)] for v in self._variables.trainable if id(v) in by_variable]
            return loss, gradients, self._told(told)

        return self._trace(own_step if self._own.trains else forward_and_backward, signature, used)

    def evaluate(self, signature: Any) -> Pass:
        def forward(x: Any, y: Any = None, weights: Any = None) -> Any:
            outputs, loss = self._forward(x, y, weights, training=False)
            self._model.compute_metrics(x, y, outputs, weights)
            return loss, [], self._told({})

        def own_step(*batch: Any) -> Any:
            loss, told = self._own.test(batch)
            return loss, [], self._told(told)

        return self._trace(own_step if self._own.tests else forward, signature, None)

    def _told(self, told: Mapping[str, Any]) -> list[Any]:
        """A number and whether it is there, for each of the numbers that own steps tell."""
        found = []
        for name in self._own.told:
            number = self._number(tf.reduce_mean(told[name])) if name in told else tf.zeros([], self._dtype)
            found.append(tf.stack([number, tf.constant(float(name in told), self._dtype)]))
        return found

    def _forward(self, x: Any, y: Any, weights: Any, *, training: bool) -> tuple[Any, Any]:
        outputs = self._keras.call(self._model, x, training=training)
        return outputs, self._keras.compute_loss(self._model, x, y, outputs, weights, training=training)

    def _trace(self, function: Any, signature: Any, used: list[bool] | None) -> Pass:
        specs = tf.nest.flatten(signature)
        flat = tf.function(
            lambda *leaves: function(*tf.nest.pack_sequence_as(signature, leaves)),
            autograph=self._keras.autograph,
            jit_compile=True if self._jit else None,
        )
        inner = flat.get_concrete_function(*specs)
        effects = effects_of(inner)
        if used is not None:
            self._own.check_written(effects.written)
        variables, training = self._variables, used is not None
        generators = self._generators(effects)
        own = {id(v) for v in (*variables.weights, *variables.metrics, *variables.shown, *generators)}
        written = {id(variable) for variable in effects.written}
        drawn = {id(variable) for variable in generators}
        state = [variable for variable in variables.weights if id(variable) in written - drawn]
        floats = tuple(variable for variable in state if variable.dtype.is_floating)
        integers = tuple(variable for variable in state if variable.dtype.is_integer or variable.dtype.is_bool)
        kept = [*floats, *integers, *variables.metrics, *variables.shown, *generators]
        sizes, present = sizes_of(variables.trainable), list[bool]()

        def run(leaves: Sequence[Any], share: Any, count: Any, seeds: Any) -> Any:
            before = {id(variable): variable.read_value() for variable in kept}
            for index, generator in enumerate(generators):
                _set_generator(generator, seeds[index])
            loss, gradients, told = inner(*leaves)
            tail = [[count, self._number(loss) * (1.0 if self._sums else count)]]
            moved = [(v, self._flat(v - before[id(v)])) for v in variables.metrics]
            tail += [move * count if id(v) in variables.by_batch else move for v, move in moved]
            tail += [number * count for number in told]
            if training:
                changed = [tf.reduce_any(tf.not_equal(v, before[id(v)])) for v in floats]
                steps = [tf.cast(v, tf.int64) - tf.cast(before[id(v)], tf.int64) for v in integers]
                moves = [self._flat(v) * share for v in floats]
                moves += [self._flat(flag) for flag in changed] + [self._flat(step) for step in steps]
                tail = [*moves, tf.ones([1], self._dtype), *tail]
            for variable in kept:
                variable.assign(before[id(variable)])
            given = iter(gradients)
            runs = joined([next(given) if has else None for has in used or ()], sizes, self._flat) if training else []
            present[:] = [run is not None for run in runs]
            return [on_host(run) for run in runs if run is not None], on_host(tf.concat(tail, 0))

        number, pair = tf.TensorSpec([], self._dtype), tf.TensorSpec([len(generators), 2], tf.int64)
        outer = tf.function(run, autograph=False).get_concrete_function(specs, number, number, pair)
        return Pass(
            run=outer,
            used=tuple(used or ()),
            present=tuple(present),
            floats=floats,
            integers=integers,
            generators=tuple(generators),
            foreign=tuple(v.name.partition(":")[0] for v in effects.written if id(v) not in own),
            random=tuple(effects.random),
        )

    def _generators(self, effects: Effects) -> list[Any]:
        """The generators of the layers, then those that only tracing finds: the global one, and a user's own."""
        known = self._keras.generators(self._model)
        found = [v for v in effects.written if _SEED_STATE in v.name and v.shape.as_list() == [2]]
        drawn = [v for v in effects.drawn if v.dtype.is_integer]
        ordered = {id(variable): variable for variable in (*known, *found, *drawn)}
        met = {id(variable) for variable in (*effects.written, *effects.drawn)}
        return [variable for key, variable in ordered.items() if key in met]

    def _flat(self, value: Any) -> Any:
        return tf.reshape(self._number(value), [-1])

    def _number(self, value: Any) -> Any:
        return tf.cast(value, self._dtype)


def _set_generator(generator: Any, pair: Any) -> None:
    """Set a generator's state. Keras's states are [seed, counter]; those of ``tf.random.Generator`` are counters
    followed by a key."""
    if _SEED_STATE in generator.name:
        generator.assign(tf.cast(pair, generator.dtype))
    else:
        counters = tf.zeros([generator.shape[0] - 1], generator.dtype)
        key = tf.cast(pair[0] * 2**31 + pair[1], generator.dtype)
        generator.assign(tf.concat([counters, [key]], 0))


def as_tensors(batch: Any, float_type: str) -> Any:
    """``batch`` with tensors in place of arrays; floating-point numbers become ``float_type``, as in ``fit``.

    Raises:
        UsageError: the batch is not (x, y) or (x, y, sample_weight).
    """
    if not isinstance(batch, tuple) or not 1 <= len(batch) <= 3:
        raise UsageError(
            f"datasets_function: a batch is a {type(batch).__name__}, takes (x, y) or (x, y, sample_weight)"
        )
    return tf.nest.map_structure(lambda leaf: _tensor(leaf, float_type), batch)


def _tensor(leaf: Any, float_type: str) -> Any:
    if isinstance(leaf, tf.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind == "f" and array.dtype != float_type:
        array = array.astype(float_type)
    return tf.convert_to_tensor(array)


class ByShape:
    """Traced passes: one for each way in which the shapes of batches differ from those of the first sample.

    Args:
        first: a batch of tensors, whose shapes are those of the first sample.
        make: (a batch of ``tf.TensorSpec``) -> pass.
    """

    def __init__(self, first: Any, make: Callable[[Any], Pass]) -> None:
        self._make = make
        self._shapes = [tuple(leaf.shape) for leaf in tf.nest.flatten(first)]
        self._made: dict[Any, Pass] = {}
        self.first = self.of(first)

    def of(self, batch: Any) -> Pass:
        """The pass that computes ``batch``.

        Raises:
            UsageError: the batch has another number of arrays than the first sample.
        """
        leaves = tf.nest.flatten(batch)
        key = tuple((leaf.dtype, self._open(index, leaf)) for index, leaf in enumerate(leaves))
        if len(self._shapes) != len(leaves):
            raise UsageError(
                f"datasets_function: a batch is made of {len(leaves)} arrays, the first sample of {len(self._shapes)}"
            )
        if key not in self._made:
            specs = [tf.TensorSpec(shape, dtype) for dtype, shape in key]
            self._made[key] = self._make(tf.nest.pack_sequence_as(batch, specs))
        return self._made[key]

    def _open(self, index: int, leaf: Any) -> tuple[int | None, ...]:
        """The shape of an array of a batch. Rows, and sizes that differ from the first sample's, are None."""
        shape = tuple(leaf.shape)
        first = self._shapes[index] if index < len(self._shapes) else ()
        if len(first) != len(shape):
            return (None,) * len(shape)
        return (None, *(size if size == was else None for size, was in zip(shape[1:], first[1:], strict=True)))


_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})
_PASSES_ON = frozenset({"Identity", "IdentityN"})
_CALLS_AFTER_FIRST = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_DRAWS = frozenset({"RngReadAndSkip", "RngSkip"})
_RANDOM = frozenset(
    {
        "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
        "ParameterizedTruncatedNormal", "Multinomial", "RandomGamma", "RandomPoisson", "RandomPoissonV2",
        "RandomCrop", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "FractionalMaxPool",
        "FractionalAvgPool", "UniformCandidateSampler", "LogUniformCandidateSampler", "AllCandidateSampler",
        "LearnedUnigramCandidateSampler", "FixedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler",
    }
)  # fmt: skip
"""Ops that draw from a state inside their kernel, which cannot be set from outside."""


class Effects(NamedTuple):
    """What one traced function does to variables."""

    written: list[Any]
    """Variables that it writes, in the order in which tracing met them."""
    drawn: list[Any]
    """Variables that hold the state of a ``tf.random.Generator``, in the same order."""
    random: list[str]
    """Names of ops that draw from a hidden state."""


def effects_of(concrete: Any) -> Effects:
    """Find the effects of ``concrete``, a ``ConcreteFunction``."""
    graph = concrete.graph
    definition = graph.as_graph_def()
    scan = _Scan({function.signature.name: function for function in definition.library.function})
    variables = {id(variable.handle): variable for variable in concrete.variables}
    places = {place.op.name: variables[id(outer)] for outer, place in graph.captures if id(outer) in variables}
    scan.follow(definition.node, {name: (name,) for name in places})
    bodies = [definition.node, *(function.node_def for function in definition.library.function)]
    return Effects(
        [variable for name, variable in places.items() if name in scan.written],
        [variable for name, variable in places.items() if name in scan.drawn],
        [node.name for nodes in bodies for node in nodes if node.op in _RANDOM],
    )


class _Scan:
    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self.written: set[str] = set()
        self.drawn: set[str] = set()

    def follow(self, nodes: Iterable[Any], known: Mapping[str, tuple[str, ...]]) -> None:
        """Follow variables through ``nodes``.

        Args:
            nodes: the nodes of one function.
            known: name of a node or an argument -> names of the captures of the outermost graph that it may hold.
        """
        aliases = dict(known)
        for node in nodes:
            inputs = [source.partition(":")[0] for source in node.input if not source.startswith("^")]
            held = {index: aliases[source] for index, source in enumerate(inputs) if source in aliases}
            if not held or node.op in _READS:
                continue
            everything = tuple(dict.fromkeys(name for names in held.values() for name in names))
            called = [self._library[name] for name in _functions(node) if name in self._library]
            if node.op in _PASSES_ON:
                aliases[node.name] = everything
            elif node.op in _DRAWS or (node.op.startswith("Stateful") and not called):
                self.drawn.update(everything)
            elif called:
                first = 1 if node.op in _CALLS_AFTER_FIRST else 0
                for function in called:
                    arguments = function.signature.input_arg
                    inner = {
                        arguments[index - first].name: names
                        for index, names in held.items()
                        if 0 <= index - first < len(arguments)
                    }
                    self.follow(function.node_def, inner)
            else:
                self.written.update(everything)


def _functions(node: Any) -> Iterable[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for item in value.list.func:
            yield item.name
