"""Recurrent layers, LSTM, GRU and plain, unrolled over their steps: what every format's converters make of them.

Sequences are (steps, batch, features) and states (1, batch, features), so that a step is a slice and a result a
concatenation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import Clip, Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.scalar import RMinusScalar
from mrt.symbol.operators.transform import Concat, SliceAxis

MOST_STEPS = 1024
"""Layers of more steps are refused: each step is operators of its own."""

Activation = Callable[[ModelNode, Symbol, str], Symbol]
"""A function of one tensor, its result named by a suffix."""


def sigmoid(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
    return node.apply(Sigmoid(), [data], suffix)


def tanh(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
    return node.apply(Tanh(), [data], suffix)


@dataclass(frozen=True)
class Weights:
    """The parameters of one direction of a layer. The rows of all but the projection are those of the gates, in the
    order of the cell."""

    input: Symbol
    """(gates · hidden, features)"""
    recurrent: Symbol
    """(gates · hidden, size of the state)"""
    bias: Symbol | None = None
    """(gates · hidden), added to the product with the input."""
    candidate: Symbol | None = None
    """(hidden, hidden), of a GRU whose last gate reads the state after its reset; `recurrent` lacks its rows then."""
    recurrent_bias: Symbol | None = None
    """(gates · hidden), added to the product with the state."""
    reset_bias: Symbol | None = None
    """(hidden), the part of `recurrent_bias` that the reset gate of a GRU scales where the state is zero."""
    projection: Symbol | None = None
    """(size of the state, hidden), of an LSTM whose state is a product of its output."""
    projection_bias: Symbol | None = None


@dataclass(frozen=True)
class State:
    """What a layer carries from step to step, None where it is zero."""

    hidden: Symbol | None = None
    memory: Symbol | None = None
    """The cell state of an LSTM."""


@dataclass(frozen=True)
class Cell(ABC):
    """One step of a layer. clip: what the activations of gates are given lies in ±clip."""

    hidden: int
    clip: float | None = None

    @property
    @abstractmethod
    def gates(self) -> int:
        """How many gates a step has."""

    @abstractmethod
    def step(self, node: ModelNode, given: Symbol, state: State, weights: Weights, name: str) -> State:
        """The state after a step, of which `given` is the input's product with its weights."""

    def _part(self, node: ModelNode, data: Symbol, begin: int, end: int, suffix: str) -> Symbol:
        """The gates from `begin` on and before `end`."""
        operator = SliceAxis(axis=2, begin=begin * self.hidden, end=end * self.hidden)
        return node.apply(operator, [data], suffix)

    def _clipped(self, node: ModelNode, data: Symbol, suffix: str) -> Symbol:
        return clipped(node, data, self.clip, f"{suffix}_clipped")


def clipped(node: ModelNode, data: Symbol, limit: float | None, suffix: str) -> Symbol:
    """`data` in ±limit; itself where there is no limit."""
    return data if limit is None else node.apply(Clip(a_min=-limit, a_max=limit), [data], suffix)


def _product(node: ModelNode, data: Symbol, weight: Symbol, bias: Symbol | None, suffix: str) -> Symbol:
    operator = FullyConnected(num_hidden=weight.shape[0], no_bias=bias is None, flatten=False)
    return node.apply(operator, [data, weight, *([] if bias is None else [bias])], suffix)


def _with_state(node: ModelNode, given: Symbol, state: State, weights: Weights, name: str) -> Symbol:
    """The input's part of all gates and the state's."""
    if state.hidden is None:
        return given
    carried = _product(node, state.hidden, weights.recurrent, None, f"{name}_carried")
    return node.apply(ElemwiseAdd(), [given, carried], f"{name}_gates")


@dataclass(frozen=True)
class Plain(Cell):
    """h' = f(x W + h R + b)."""

    activation: Activation = tanh

    @property
    def gates(self) -> int:
        return 1

    def step(self, node: ModelNode, given: Symbol, state: State, weights: Weights, name: str) -> State:
        gates = self._clipped(node, _with_state(node, given, state, weights, name), f"{name}_gates")
        return State(self.activation(node, gates, f"{name}_hidden"))


@dataclass(frozen=True)
class LSTM(Cell):
    """c' = f c + i g, h' = o tanh(c'), the gates in the order i, o, f, g.

    coupled: "f" where that gate has no weights and is 1 − i, "i" where it is the other way round: the rows of the
    weights are (i, o, g) or (f, o, g).
    cell_clip: c' lies in ±cell_clip; projection_clip: so does the projected h'.
    """

    gate: Activation = sigmoid
    candidate: Activation = tanh
    output: Activation = tanh
    coupled: str = ""
    cell_clip: float | None = None
    projection_clip: float | None = None

    @property
    def gates(self) -> int:
        return 3 if self.coupled else 4

    def step(self, node: ModelNode, given: Symbol, state: State, weights: Weights, name: str) -> State:
        gates = self._clipped(node, _with_state(node, given, state, weights, name), f"{name}_gates")
        last = self.gates - 1
        opened = self.gate(node, self._part(node, gates, 0, last, f"{name}_open"), f"{name}_opened")
        i, o, f = self._opened(node, opened, name)
        g = self.candidate(node, self._part(node, gates, last, last + 1, f"{name}_candidate"), f"{name}_g")
        memory = node.apply(ElemwiseMul(), [i, g], f"{name}_new")
        if state.memory is not None:
            kept = node.apply(ElemwiseMul(), [f, state.memory], f"{name}_kept")
            memory = node.apply(ElemwiseAdd(), [kept, memory], f"{name}_memory")
        memory = clipped(node, memory, self.cell_clip, f"{name}_memory_clipped")
        shown = self.output(node, memory, f"{name}_activated")
        hidden = node.apply(ElemwiseMul(), [o, shown], f"{name}_hidden")
        return State(self._projected(node, hidden, weights, name), memory)

    def _opened(self, node: ModelNode, opened: Symbol, name: str) -> tuple[Symbol, Symbol, Symbol]:
        """The gates i, o and f."""
        first, o = (self._part(node, opened, k, k + 1, f"{name}_{'io'[k]}") for k in range(2))
        if not self.coupled:
            return first, o, self._part(node, opened, 2, 3, f"{name}_f")
        other = node.apply(RMinusScalar(1.0), [first], f"{name}_coupled")
        return (first, o, other) if self.coupled == "f" else (other, o, first)

    def _projected(self, node: ModelNode, hidden: Symbol, weights: Weights, name: str) -> Symbol:
        if weights.projection is None:
            return hidden
        result = _product(node, hidden, weights.projection, weights.projection_bias, f"{name}_projected")
        return clipped(node, result, self.projection_clip, f"{name}_projected_clipped")


@dataclass(frozen=True)
class GRU(Cell):
    """h' = n + z (h − n), the gates in the order z, r, n.

    n is g(x Wn + (r h) Rn + b) where the weights have a `candidate`, else g(x Wn + b + r (h Rn + recurrent_bias)).
    """

    gate: Activation = sigmoid
    candidate: Activation = tanh

    @property
    def gates(self) -> int:
        return 3

    def step(self, node: ModelNode, given: Symbol, state: State, weights: Weights, name: str) -> State:
        carried = self._carried(node, state, weights, name)
        gates = self._part(node, given, 0, 2, f"{name}_given")
        if carried is not None:
            gates = node.apply(ElemwiseAdd(), [gates, self._part(node, carried, 0, 2, f"{name}_seen")], f"{name}_gates")
        opened = self.gate(node, self._clipped(node, gates, f"{name}_gates"), f"{name}_opened")
        z, r = (self._part(node, opened, k, k + 1, f"{name}_{'zr'[k]}") for k in range(2))
        n = self._candidate(node, given, carried, r, state, weights, name)
        if state.hidden is None:
            unchanged = node.apply(RMinusScalar(1.0), [z], f"{name}_change")
            return State(node.apply(ElemwiseMul(), [unchanged, n], f"{name}_hidden"))
        difference = node.apply(ElemwiseSub(), [state.hidden, n], f"{name}_difference")
        kept = node.apply(ElemwiseMul(), [z, difference], f"{name}_kept")
        return State(node.apply(ElemwiseAdd(), [n, kept], f"{name}_hidden"))

    def _carried(self, node: ModelNode, state: State, weights: Weights, name: str) -> Symbol | None:
        """The state's product with its weights, None where the state is zero."""
        if state.hidden is None:
            return None
        return _product(node, state.hidden, weights.recurrent, weights.recurrent_bias, f"{name}_carried")

    def _reset(
        self, node: ModelNode, carried: Symbol | None, r: Symbol, state: State, weights: Weights, name: str
    ) -> Symbol | None:
        """What the last gate sees of the state, None where that is zero."""
        if weights.candidate is not None:
            if state.hidden is None:
                return None
            reset = node.apply(ElemwiseMul(), [r, state.hidden], f"{name}_reset")
            return _product(node, reset, weights.candidate, None, f"{name}_seen_reset")
        if carried is None:
            if weights.reset_bias is None:
                return None
            return node.apply(BroadcastMul(), [r, weights.reset_bias], f"{name}_reset")
        return node.apply(ElemwiseMul(), [r, self._part(node, carried, 2, 3, f"{name}_last")], f"{name}_reset")

    def _candidate(
        self,
        node: ModelNode,
        given: Symbol,
        carried: Symbol | None,
        r: Symbol,
        state: State,
        weights: Weights,
        name: str,
    ) -> Symbol:
        total = self._part(node, given, 2, 3, f"{name}_candidate")
        addend = self._reset(node, carried, r, state, weights, name)
        if addend is not None:
            total = node.apply(ElemwiseAdd(), [total, addend], f"{name}_sum")
        return self.candidate(node, self._clipped(node, total, f"{name}_sum"), f"{name}_n")


def unrolled(
    node: ModelNode, cell: Cell, data: Symbol, weights: Weights, state: State, name: str, backwards: bool = False
) -> tuple[Symbol, State]:
    """The states after each step of `data` (steps, batch, features), as (steps, batch, size), and the last state.

    backwards: from the last step to the first; the result has the order of the data. name: begins all names.
    Raises UnsupportedOperatorError where there are more than MOST_STEPS.
    """
    steps = data.shape[0]
    if not 0 < steps <= MOST_STEPS:
        raise node.unsupported("the sequence", f"{steps} steps long", f"one of 1 to {MOST_STEPS} steps")
    given = _product(node, data, weights.input, weights.bias, f"{name}_given")
    results: list[Symbol] = []
    for step in reversed(range(steps)) if backwards else range(steps):
        part = given
        if steps > 1:
            part = node.apply(SliceAxis(axis=0, begin=step, end=step + 1), [given], f"{name}_{step}_given")
        state = cell.step(node, part, state, weights, f"{name}_{step}")
        results.append(_hidden(node, state))
    return joined(node, results[::-1] if backwards else results, 0, f"{name}_all"), state


def _hidden(node: ModelNode, state: State) -> Symbol:
    if state.hidden is None:
        raise GraphError(f"{node.label}: a step gives no state")
    return state.hidden


def joined(node: ModelNode, parts: Sequence[Symbol], axis: int, suffix: str) -> Symbol:
    """The tensors one after another along an axis; one as it is."""
    return parts[0] if len(parts) == 1 else node.apply(Concat(dim=axis), list(parts), suffix)


def reset_weights(
    node: ModelNode,
    cell: GRU,
    weight: Symbol,
    recurrent: Callable[[str, int, int], Symbol],
    biases: tuple[Array, Array],
    after: bool,
    name: str,
) -> Weights:
    """The weights of a GRU.

    recurrent: gives the rows from one to another of the state's weights, as a parameter of a kind.
    biases: of the input and of the state, (3 · hidden) each. after: whether the reset gate scales the state's product
    with its weights, and not the state.
    """
    given, carried = biases
    first, rows = 2 * cell.hidden, 3 * cell.hidden
    last = carried[first:]
    if not after:
        bias = _parameter(node, given + carried, f"{name}_bias")
        return Weights(weight, recurrent("gates", 0, first), bias, recurrent("candidate", first, rows))
    added = np.concatenate([given[:first] + carried[:first], given[first:]])
    own = _parameter(node, np.concatenate([np.zeros(first), last]), f"{name}_recurrent_bias")
    reset = _parameter(node, last, f"{name}_reset_bias")
    return Weights(
        weight,
        recurrent("weights", 0, rows),
        _parameter(node, added, f"{name}_bias"),
        recurrent_bias=own,
        reset_bias=reset,
    )


def _parameter(node: ModelNode, value: Array, suffix: str) -> Symbol | None:
    """A parameter, None where all of it is zero."""
    return node.parameter(value, suffix) if np.any(value) else None
