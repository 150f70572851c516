"""MXNet's fused recurrent layers: all layers and directions of an RNN node, unrolled over their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.recurrence import (
    GRU,
    LSTM,
    Cell,
    Plain,
    State,
    Weights,
    joined,
    reset_weights,
    tanh,
    unrolled,
)
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.transform import Concat, SliceAxis

_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_relu": (0,), "rnn_tanh": (0,)}
"""Where the gates of our cells stand in MXNet's order: i, f, g, o of an LSTM, r, z, n of a GRU."""
_DIRECTIONS = ("forward", "backward")


@converter("_rnn_param_concat")
def parameter_vector(node: Node) -> Symbol:
    """All parameters of a layer one behind the other, as Gluon gives them to the layer."""
    return node.apply(Concat(dim=node.integer("dim", 1)), node.symbols())


@converter("RNN")
def recurrent(node: Node) -> Mapping[int, Symbol]:
    """The states of the last layer after each step, and those of all layers after the last one.

    The parameters are one vector: of every layer and direction the weights of the input, of the state and, where there
    is a projection, of that; behind all of these the biases of the input and of the state, in the same order.
    """
    layer = _Layer.of(node)
    data, hidden, memory, finals = node.symbol(0), _state(node, 2, layer), None, []
    if layer.mode == "lstm":
        memory = _state(node, 3, layer)
    parts = _Parts(_vector(node))
    blocks = list(layer.blocks(data.shape[2], parts))
    biases = [tuple(parts.take(layer.rows) for _ in range(2)) for _ in blocks]
    parts.check_empty(node)
    count = layer.directions
    for first in range(0, len(blocks), count):
        results = []
        for place in range(first, first + count):
            name = f"layer{first // count}_{_DIRECTIONS[place - first]}"
            weights = _weights(node, layer, blocks[place], biases[place], name)
            state = State(
                *(_part(node, kept, place, f"{name}_{role}") for kept, role in ((hidden, "h"), (memory, "c")))
            )
            every, last = unrolled(node, layer.cell, data, weights, state, name, place > first)
            results.append(every)
            finals.append(last)
        data = joined(node, results, 2, f"layer{first // count}")
    found = {0: data}
    if 1 in node.used:
        found[1] = joined(node, [state.hidden for state in finals if state.hidden is not None], 0, "last")
    if 2 in node.used and layer.mode == "lstm":
        found[2] = joined(node, [state.memory for state in finals if state.memory is not None], 0, "last_memory")
    return {place: found[place] for place in node.used if place in found}


@dataclass(frozen=True)
class _Block:
    """The weights of one layer and direction, gates in MXNet's order."""

    input: Array
    recurrent: Array
    projection: Array | None


@dataclass(frozen=True)
class _Layer:
    """What the attributes say."""

    mode: str
    hidden: int
    layers: int
    directions: int
    projection: int | None
    clip: float | None

    @classmethod
    def of(cls, node: Node) -> _Layer:
        mode, projection = node.text("mode", ""), node.text("projection_size", "None")
        if mode not in _ORDER:
            raise node.unsupported("attribute mode", mode or "missing", f"one of {', '.join(_ORDER)}")
        if node.flag("use_sequence_length"):
            raise node.unsupported("attribute use_sequence_length", "True", "sequences of one length")
        found = cls(
            mode,
            node.integer("state_size"),
            node.integer("num_layers"),
            1 + node.flag("bidirectional"),
            None if projection == "None" else node.integer("projection_size"),
            _clip(node),
        )
        data = node.shape(0)
        if len(data) != 3 or min(found.hidden, found.layers, found.size) < 1:
            raise GraphError(
                f"{node.label}: data has shape {data}, with {found.layers} layers of {found.hidden} units; three axes "
                "and positive numbers are needed"
            )
        if found.projection is not None and mode != "lstm":
            raise node.unsupported("attribute projection_size", found.projection, f"None for mode {mode}")
        node.made((found.layers, found.rows, found.size))
        return found

    @property
    def rows(self) -> int:
        return len(_ORDER[self.mode]) * self.hidden

    @property
    def size(self) -> int:
        """How many numbers a state has."""
        return self.hidden if self.projection is None else self.projection

    @property
    def cell(self) -> Cell:
        if self.mode == "lstm":
            return LSTM(self.hidden, cell_clip=self.clip)
        if self.mode == "gru":
            return GRU(self.hidden)
        return Plain(self.hidden, activation=_relu if self.mode == "rnn_relu" else tanh)

    def blocks(self, features: int, parts: _Parts) -> Iterator[_Block]:
        for layer in range(self.layers):
            inputs = self.directions * self.size if layer else features
            for _ in range(self.directions):
                given, carried = parts.take(self.rows, inputs), parts.take(self.rows, self.size)
                projected = None if self.projection is None else parts.take(self.projection, self.hidden)
                yield _Block(given, carried, projected)


class _Parts:
    """Takes arrays off the beginning of a vector."""

    def __init__(self, vector: Array) -> None:
        self._vector, self._taken = vector, 0

    def take(self, *shape: int) -> Array:
        """The next array; one of what is left where that is too little, which `check_empty` tells."""
        first = self._taken
        self._taken += int(np.prod(shape))
        found = self._vector[first : self._taken]
        return found.reshape(shape) if found.size == np.prod(shape) else np.zeros(shape, self._vector.dtype)

    def check_empty(self, node: Node) -> None:
        if self._taken != self._vector.size:
            raise GraphError(f"{node.label}: has {self._vector.size} parameters; {self._taken} are needed")


def _relu(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
    return node.apply(Relu(), [data], suffix)


def _clip(node: Node) -> float | None:
    """The limit of the cell state on either side."""
    texts = [node.text(f"lstm_state_clip_{end}", "None") for end in ("min", "max")]
    if texts == ["None", "None"]:
        return None
    lo, hi = node.number("lstm_state_clip_min", -np.inf), node.number("lstm_state_clip_max", np.inf)
    if not 0 < hi == -lo:
        raise node.unsupported("lstm_state_clip_min, lstm_state_clip_max", f"{lo}, {hi}", "-limit, limit")
    return hi


def _vector(node: Node) -> Array:
    """The parameters: a variable, or made of variables alone."""
    known = node.array(1)
    if known is None:
        graph = node.scope.builder.graph([node.symbol(1)])
        if not set(graph.inputs).isdisjoint(graph.symbols):
            raise node.unsupported("input parameters", "computed from the data", "constants")
        known = replace(graph, inputs=()).evaluate({})[0]
    return known.reshape(-1)


def _state(node: Node, index: int, layer: _Layer) -> Symbol | None:
    """An initial state, (layers · directions, batch, size), None where it is zero."""
    if not node.has(index):
        return None
    known = node.array(index)
    # Gluon leaves the batch of the zeros that it begins with open.
    if known is not None and not np.any(known):
        return None
    size = layer.hidden if index == 3 else layer.size
    needed = (layer.layers * layer.directions, node.shape(0)[1], size)
    if node.shape(index) != needed:
        raise GraphError(f"{node.label}: input {index} has shape {node.shape(index)}; {needed} is needed")
    return node.symbol(index)


def _part(node: Node, states: Symbol | None, place: int, suffix: str) -> Symbol | None:
    """The state of one layer and direction."""
    if states is None or states.shape[0] == 1:
        return states
    return node.apply(SliceAxis(axis=0, begin=place, end=place + 1), [states], suffix)


def _weights(node: Node, layer: _Layer, block: _Block, biases: Sequence[Array], name: str) -> Weights:
    order = np.concatenate([np.arange(layer.hidden) + gate * layer.hidden for gate in _ORDER[layer.mode]])
    given, carried = (bias[order] for bias in biases)
    recurrent = block.recurrent[order]
    weight = node.parameter(block.input[order], f"{name}_weights")
    cell = layer.cell
    if isinstance(cell, GRU):
        return reset_weights(
            node,
            cell,
            weight,
            lambda kind, begin, end: node.parameter(recurrent[begin:end], f"{name}_recurrent_{kind}"),
            (given, carried),
            True,
            name,
        )
    bias = given + carried
    return Weights(
        weight,
        node.parameter(recurrent, f"{name}_recurrent_weights"),
        node.parameter(bias, f"{name}_bias") if np.any(bias) else None,
        projection=None if block.projection is None else node.parameter(block.projection, f"{name}_projection"),
    )
