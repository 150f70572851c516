"""TFLite's recurrent layers over a sequence, LSTM and plain, in one direction or both, unrolled over their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode, Value
from mrt.frontend.shared.recurrence import LSTM, Activation, Cell, Plain, State, Weights, joined, unrolled
from mrt.frontend.tflite.activation import ACTIVATIONS, activation_name
from mrt.frontend.tflite.files import Options
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.transform import Transpose

_FLOAT = "the model converted in float, or with weights of 8 bits only: MRT quantizes its states itself"


@dataclass(frozen=True)
class _Gates:
    """The inputs of one direction of an LSTM, by their places, those of gates in TFLite's order i, f, g, o."""

    weights: int
    recurrent: int
    peepholes: int
    biases: int
    projection: int
    states: int


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(node: Node) -> Symbol:
    options = node.options("UnidirectionalSequenceLSTMOptions")
    if options.flag("DiagonalRecurrentTensors"):
        raise node.unsupported("DiagonalRecurrentTensors", "set", "a layer with whole weights")
    if any(node.has(place) for place in range(20, 24)):
        raise node.unsupported("the layer", "one that normalises its gates (inputs 20 to 23)", "one without")
    data = _steps_first(node, options)
    every = _lstm(node, options, data, _Gates(1, 5, 9, 12, 16, 18), "forward")
    return _as_given(node, options, every)


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(node: Node) -> Value:
    options = node.options("BidirectionalSequenceLSTMOptions")
    _refuse_auxiliary(node, 39)
    data = _steps_first(node, options)
    forward = _lstm(node, options, data, _Gates(1, 5, 9, 12, 16, 35), "forward")
    backward = _lstm(node, options, data, _Gates(18, 22, 26, 29, 33, 37), "backward", True)
    return _both(node, options, forward, backward)


@converter("UNIDIRECTIONAL_SEQUENCE_RNN")
def plain(node: Node) -> Symbol:
    options = node.options("SequenceRNNOptions")
    every = _plain(node, options, _steps_first(node, options), 1, "forward")
    return _as_given(node, options, every)


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_plain(node: Node) -> Value:
    options = node.options("BidirectionalSequenceRNNOptions")
    _refuse_auxiliary(node, 9)
    data = _steps_first(node, options)
    forward = _plain(node, options, data, 1, "forward")
    return _both(node, options, forward, _plain(node, options, data, 5, "backward", True))


def _lstm(node: Node, options: Options, data: Symbol, places: _Gates, name: str, backwards: bool = False) -> Symbol:
    """The states of one direction after each step, (steps, batch, size)."""
    if any(node.has(places.peepholes + gate) for gate in range(3)):
        raise node.unsupported("the layer", "one whose gates read the cell state (peepholes)", "one without")
    coupled = not node.has(places.weights)
    order = (1, 3, 2) if coupled else (0, 3, 1, 2)
    weights = [node.known(places.weights + gate, "weights") for gate in order]
    recurrent = [node.known(places.recurrent + gate, "recurrent weights") for gate in order]
    biases = [node.known(places.biases + gate, "bias") for gate in order]
    hidden = weights[0].shape[0]
    projection = node.symbol(places.projection, f"{name}_projection") if node.has(places.projection) else None
    bias = None
    if projection is not None and node.has(places.projection + 1):
        bias = node.symbol(places.projection + 1, f"{name}_projection_bias")
    size = hidden if projection is None else node.shape(places.projection)[0]
    _check(node, weights, (hidden, data.shape[2]), "weights")
    _check(node, recurrent, (hidden, size), "recurrent weights")
    _check(node, biases, (hidden,), "bias")
    activation = _activation(node, options)
    cell = LSTM(
        hidden,
        candidate=activation,
        output=activation,
        coupled="i" if coupled else "",
        cell_clip=options.number("CellClip") or None,
        projection_clip=options.number("ProjClip") or None,
    )
    made = Weights(*_stacked(node, weights, recurrent, biases, name), projection=projection, projection_bias=bias)
    return _unrolled(node, cell, data, made, places.states, name, backwards)


def _plain(node: Node, options: Options, data: Symbol, first: int, name: str, backwards: bool = False) -> Symbol:
    """The states of one direction after each step; its weights, those of the state, bias and state begin at `first`."""
    weight, recurrent, bias = (node.known(first + k, role) for k, role in enumerate(("weight", "recurrent", "bias")))
    hidden = weight.shape[0]
    _check(node, [weight], (hidden, data.shape[2]), "weights")
    _check(node, [recurrent], (hidden, hidden), "recurrent weights")
    _check(node, [bias], (hidden,), "bias")
    made = Weights(*_stacked(node, [weight], [recurrent], [bias], name))
    cell = Plain(hidden, activation=_activation(node, options))
    return _unrolled(node, cell, data, made, first + 3, name, backwards)


def _stacked(
    node: Node, weights: Sequence[Array], recurrent: Sequence[Array], biases: Sequence[Array], name: str
) -> tuple[Symbol, Symbol, Symbol | None]:
    """The parameters of all gates, one behind the other."""
    bias = np.concatenate(biases)
    return (
        node.parameter(np.concatenate(weights), f"{name}_weights"),
        node.parameter(np.concatenate(recurrent), f"{name}_recurrent_weights"),
        node.parameter(bias, f"{name}_bias") if np.any(bias) else None,
    )


def _unrolled(
    node: Node, cell: Cell, data: Symbol, weights: Weights, states: int, name: str, backwards: bool
) -> Symbol:
    """From a state of zeros: the file's is a variable, which begins so."""
    for place in range(states, states + (2 if isinstance(cell, LSTM) else 1)):
        if not node.is_known(place) or np.any(node.known(place, "state")):
            raise node.unsupported(f"input {place}, the state,", "given", "a variable, which begins with zeros")
    return unrolled(node, cell, data, weights, State(), name, backwards)[0]


def _steps_first(node: Node, options: Options) -> Symbol:
    """The data as (steps, batch, features)."""
    if any(tensor.is_quantized for tensor in node.outputs):
        raise node.unsupported("the layer", "quantized, states included", _FLOAT)
    data = node.symbol(0, "data")
    if data.type.rank != 3:
        raise GraphError(f"{node.label}: data is {data.type}; three axes are needed")
    return data if options.flag("TimeMajor") else node.apply(Transpose(axes=(1, 0, 2)), [data], "steps_first")


def _as_given(node: Node, options: Options, every: Symbol, suffix: str = "") -> Symbol:
    """The states of all steps with the axes in the order that the data has."""
    return every if options.flag("TimeMajor") else node.apply(Transpose(axes=(1, 0, 2)), [every], suffix)


def _both(node: Node, options: Options, forward: Symbol, backward: Symbol) -> Value:
    """Both directions as one tensor, or as two."""
    if options.flag("MergeOutputs"):
        return _as_given(node, options, joined(node, [forward, backward], 2, "directions"))
    return tuple(_as_given(node, options, every, f"output{place}") for place, every in enumerate((forward, backward)))


def _activation(node: Node, options: Options) -> Activation:
    kind = activation_name(options)
    if kind == "NONE":
        return lambda node, data, suffix: data
    if kind not in ACTIVATIONS:
        raise node.unsupported("FusedActivationFunction", kind, f"NONE or one of {', '.join(ACTIVATIONS)}")

    def apply(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
        return node.apply(ACTIVATIONS[kind](), [data], suffix)

    return apply


def _refuse_auxiliary(node: Node, place: int) -> None:
    if any(node.has(index) for index in range(place, len(node.inputs))):
        raise node.unsupported("the layer", "one with an auxiliary input", "one without, its directions apart")


def _check(node: Node, arrays: Sequence[Array], shape: tuple[int, ...], role: str) -> None:
    wrong = next((array.shape for array in arrays if array.shape != shape), None)
    if wrong is not None:
        raise GraphError(f"{node.label}: {role} of shape {wrong}; {shape} is needed")
