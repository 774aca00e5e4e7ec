"""What a traced function does besides computing: which variables it writes, which random ops it has. Room: runners.

Read from the graph's definition, functions that it calls included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
"""Ops that draw from a state inside the kernel, where nobody can set it."""


@dataclass
class Effects:
    """Of one traced function."""

    written: list[Any] = field(default_factory=list)
    """Variables, in the order in which tracing met them."""
    drawn: list[Any] = field(default_factory=list)
    """Variables that are the state of a ``tf.random.Generator``, in that order."""
    random: list[str] = field(default_factory=list)
    """Names of ops that draw from a hidden state."""


def effects_of(concrete: Any) -> Effects:
    """``concrete``: a ``ConcreteFunction``."""
    graph = concrete.graph
    definition = graph.as_graph_def()
    scan = _Scan({function.signature.name: function for function in definition.library.function})
    variables = {id(variable.handle): variable for variable in concrete.variables}
    places = {place.op.name: variables[id(outer)] for outer, place in graph.captures if id(outer) in variables}
    scan.read(definition.node, {name: (name,) for name in places})
    for function in definition.library.function:
        scan.look_for_random(function.node_def)
    return Effects(
        [variable for name, variable in places.items() if name in scan.written],
        [variable for name, variable in places.items() if name in scan.drawn],
        scan.random,
    )


class _Scan:
    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self.written: set[str] = set()
        self.drawn: set[str] = set()
        self.random: list[str] = []

    def read(self, nodes: Iterable[Any], known: Mapping[str, tuple[str, ...]]) -> None:
        """Of the outermost graph."""
        nodes = list(nodes)
        self.look_for_random(nodes)
        self._follow(nodes, known)

    def look_for_random(self, nodes: Iterable[Any]) -> None:
        self.random += [node.name for node in nodes if node.op in _RANDOM]

    def _follow(self, nodes: Iterable[Any], known: Mapping[str, tuple[str, ...]]) -> None:
        """``known``: name of a node or an argument -> captures of the outermost graph that its output may be."""
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
                    self._follow(function.node_def, inner)
            else:
                self.written.update(everything)


def _functions(node: Any) -> Iterable[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for item in value.list.func:
            yield item.name
