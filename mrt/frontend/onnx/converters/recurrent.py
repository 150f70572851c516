"""Recurrent ONNX layers, LSTM, GRU and RNN in every direction, unrolled over their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.recurrence import (
    GRU,
    LSTM,
    Activation,
    Cell,
    Plain,
    State,
    Weights,
    joined,
    reset_weights,
    sigmoid,
    tanh,
    unrolled,
)
from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu, Tanh
from mrt.symbol.operators.functions import HardSigmoid, Softrelu, Softsign
from mrt.symbol.operators.scalar import MulScalar, PlusScalar
from mrt.symbol.operators.transform import ExpandDims, SliceAxis, Transpose

_Numbers = Callable[[float, float], Activation]
"""An activation for its alpha and beta."""


def _one(make: Callable[[float, float], Operator]) -> _Numbers:
    """An activation that is one operator."""
    return lambda alpha, beta: lambda node, data, suffix: node.apply(make(alpha, beta), [data], suffix)


def _affine(alpha: float, beta: float) -> Activation:
    def apply(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
        return node.apply(PlusScalar(beta), [node.apply(MulScalar(alpha), [data], f"{suffix}_scaled")], suffix)

    return apply


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def apply(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
        inner = node.apply(Tanh(), [node.apply(MulScalar(beta), [data], f"{suffix}_scaled")], f"{suffix}_tanh")
        return node.apply(MulScalar(alpha), [inner], suffix)

    return apply


@dataclass(frozen=True)
class _Function:
    """An activation as ONNX calls it, with what it takes for an alpha or a beta that is not stated."""

    make: _Numbers
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "affine": _Function(_affine, 1.0, 0.0),
    "elu": _Function(_one(lambda alpha, _: LeakyReLU(act_type="elu", slope=alpha)), 1.0),
    "hardsigmoid": _Function(_one(HardSigmoid), 0.2, 0.5),
    "leakyrelu": _Function(_one(lambda alpha, _: LeakyReLU(slope=alpha)), 0.01),
    "relu": _Function(_one(lambda *_: Relu())),
    "scaledtanh": _Function(_scaled_tanh, 1.0, 1.0),
    "sigmoid": _Function(lambda *_: sigmoid),
    "softplus": _Function(_one(lambda *_: Softrelu())),
    "softsign": _Function(_one(lambda *_: Softsign())),
    "tanh": _Function(lambda *_: tanh),
}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@converter(*_DEFAULTS)
def recurrent(node: Node) -> tuple[Symbol, ...]:
    """Y, Y_h and, of an LSTM, Y_c. Peepholes and sequences of several lengths are refused."""
    directions = _checked(node)
    data = node.symbol(0)
    batch_first = bool(node.integer("layout", 0))
    if batch_first:
        data = node.apply(Transpose(axes=(1, 0, 2)), [data], "steps_first")
    initial = [_initial(node, index, len(directions), data.shape[1], batch_first) for index in (5, 6)]
    results, states = [], []
    for index, (backwards, cell) in enumerate(zip(directions, _cells(node, len(directions)), strict=True)):
        name = "backward" if backwards else "forward"
        state = State(*(_direction(node, symbol, index, f"{name}_{kind}") for symbol, kind in initial))
        every, last = unrolled(node, cell, data, _weights(node, cell, index, name), state, name, backwards)
        results.append(node.apply(ExpandDims(axis=1), [every], f"{name}_direction"))
        states.append(last)
    y = joined(node, results, 1, "directions")
    last_states = [_joined_states(node, [s.hidden for s in states], "last", batch_first)]
    if node.operator == "LSTM":
        last_states.append(_joined_states(node, [s.memory for s in states], "last_memory", batch_first))
    if batch_first:
        y = node.apply(Transpose(axes=(2, 0, 1, 3)), [y], "batch_first")
    return (y, *last_states)[: len(node.proto.output)]


def _checked(node: Node) -> tuple[bool, ...]:
    """Whether each direction runs backwards; the shapes of inputs are checked."""
    word = node.text("direction", "forward")
    if word not in _DIRECTIONS:
        raise node.unsupported("attribute direction", word, " or ".join(_DIRECTIONS))
    shape, hidden = node.shape(0), _hidden(node)
    if len(shape) != 3 or hidden < 1:
        raise GraphError(f"{node.label}: X has shape {shape}, {hidden} hidden units; three axes and a unit are needed")
    count, rows = len(_DIRECTIONS[word]), _GATES[node.operator] * hidden
    expected = {1: (count, rows, shape[2]), 2: (count, rows, hidden), 3: (count, 2 * rows)}
    for index, needed in expected.items():
        if (index < 3 or node.has(index)) and node.known(index, "_WRB"[index]).shape != needed:
            raise GraphError(f"{node.label}: input {'_WRB'[index]} has shape {node.shape(index)}; {needed} is needed")
    steps = shape[1 if node.integer("layout", 0) else 0]
    lengths = node.given_integers(4, "sequence_lens")
    if lengths is not None and set(lengths) != {steps}:
        raise node.unsupported("input sequence_lens", lengths, f"none, or {steps} for all, which is the data's length")
    if node.has(7) and np.any(node.known(7, "P")):
        raise node.unsupported("input P", "given (peepholes)", "a layer without peepholes")
    return _DIRECTIONS[word]


def _hidden(node: Node) -> int:
    return node.integer("hidden_size", node.shape(2)[-1])


def _cells(node: Node, count: int) -> Iterator[Cell]:
    """The cell of each direction."""
    clip = node.number("clip", 0.0)
    hidden, limit = _hidden(node), clip if clip > 0 else None
    kinds = len(_DEFAULTS[node.operator])
    functions = _functions(node, count * kinds)
    for first in range(0, count * kinds, kinds):
        own = functions[first : first + kinds]
        if node.operator == "RNN":
            yield Plain(hidden, limit, activation=own[0])
        elif node.operator == "GRU":
            yield GRU(hidden, limit, gate=own[0], candidate=own[1])
        else:
            coupled = "f" if node.integer("input_forget", 0) else ""
            yield LSTM(hidden, limit, own[0], own[1], own[2], coupled)


def _functions(node: Node, count: int) -> list[Activation]:
    """The activations of all directions, each with its alpha and beta, which are listed in their order."""
    names = node.texts("activations") or _DEFAULTS[node.operator] * (count // len(_DEFAULTS[node.operator]))
    unknown = sorted({name for name in names if name.lower() not in _ACTIVATIONS})
    if unknown:
        raise node.unsupported("attribute activations", ", ".join(unknown), f"one of {', '.join(_ACTIVATIONS)}")
    if len(names) != count:
        raise GraphError(f"{node.label}: {len(names)} activations are listed; {count} are needed")
    alphas, betas = iter(node.numbers("activation_alpha")), iter(node.numbers("activation_beta"))
    result = []
    for function in (_ACTIVATIONS[name.lower()] for name in names):
        alpha = 0.0 if function.alpha is None else next(alphas, function.alpha)
        beta = 0.0 if function.beta is None else next(betas, function.beta)
        result.append(function.make(alpha, beta))
    return result


def _initial(node: Node, index: int, count: int, batch: int, batch_first: bool) -> tuple[Symbol | None, str]:
    """An initial state as (directions, batch, hidden), None where it is zero; and what it is called."""
    kind = "initial_h" if index == 5 else "initial_c"
    if not node.has(index) or (index == 6 and node.operator != "LSTM"):
        return None, kind
    needed = (batch, count, _hidden(node)) if batch_first else (count, batch, _hidden(node))
    if node.shape(index) != needed:
        raise GraphError(f"{node.label}: {kind} has shape {node.shape(index)}; {needed} is needed")
    if node.is_known(index) and not np.any(node.known(index, kind)):
        return None, kind
    symbol = node.symbol(index)
    return (node.apply(Transpose(axes=(1, 0, 2)), [symbol], f"{kind}_first") if batch_first else symbol), kind


def _direction(node: Node, states: Symbol | None, index: int, suffix: str) -> Symbol | None:
    """The state of one direction, (1, batch, hidden)."""
    if states is None or states.shape[0] == 1:
        return states
    return node.apply(SliceAxis(axis=0, begin=index, end=index + 1), [states], suffix)


def _weights(node: Node, cell: Cell, direction: int, name: str) -> Weights:
    """The weights of one direction. The gates of ONNX have the order of the cells."""
    rows, all_rows = cell.gates * cell.hidden, _GATES[node.operator] * cell.hidden

    def gates(array: Array) -> Array:
        # A coupled LSTM has no use for the rows of its forget gate, which stand behind two others.
        apart = 2 * cell.hidden
        return array if rows == all_rows else np.concatenate([array[:apart], array[apart + cell.hidden :]])

    weight = node.parameter_of(1, "W", f"weights_{direction}_{rows}", lambda w: gates(w[direction]))
    bias = node.known(3, "B")[direction].astype(np.float64) if node.has(3) else np.zeros(2 * all_rows)
    given, carried = gates(bias[:all_rows]), gates(bias[all_rows:])
    if isinstance(cell, GRU):
        after = bool(node.integer("linear_before_reset", 0))

        def recurrent(kind: str, begin: int, end: int) -> Symbol:
            return node.parameter_of(2, "R", f"{kind}_{direction}_{end}", lambda r: r[direction, begin:end])

        return reset_weights(node, cell, weight, recurrent, (given, carried), after, name)
    weights = node.parameter_of(2, "R", f"weights_{direction}_{rows}", lambda r: gates(r[direction]))
    return Weights(weight, weights, node.parameter(given + carried, f"{name}_bias") if np.any(bias) else None)


def _joined_states(node: Node, states: Sequence[Symbol | None], name: str, batch_first: bool) -> Symbol:
    """The last states of all directions, (directions, batch, hidden), or with the batch first."""
    given = [state for state in states if state is not None]
    result = joined(node, given, 0, name)
    return node.apply(Transpose(axes=(1, 0, 2)), [result], f"{name}_batch_first") if batch_first else result


@converter("com.microsoft.DynamicQuantizeLSTM")
def dynamically_quantized(node: Node) -> Symbol:
    raise node.unsupported("the layer", "quantized anew for each input, at scales that no proof knows", _FLOAT)


_FLOAT = "the float model that it was made of, whose LSTM is quantized here"
