"""The activation that many TFLite operators have built in."""

from __future__ import annotations

from collections.abc import Callable

import tflite

from mrt.frontend.tflite.files import Options, names_of
from mrt.frontend.tflite.node import Node
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Clip, Relu, Tanh

ACTIVATIONS: dict[str, Callable[[], Operator]] = {
    "RELU": Relu,
    "RELU_0_TO_1": lambda: Clip(a_min=0.0, a_max=1.0),
    "RELU_N1_TO_1": lambda: Clip(a_min=-1.0, a_max=1.0),
    "RELU6": lambda: Clip(a_min=0.0, a_max=6.0),
    "TANH": Tanh,
}
"""The activations, whether built into another operator or one of their own."""

_NAMES = names_of(tflite.ActivationFunctionType)


def activated(node: Node, options: Options, make: Callable[[str], Symbol], suffix: str = "") -> Symbol:
    """What `make` gives, through the activation that the options name.

    make: is told the suffix of the name of what it makes.
    """
    kind = activation_name(options)
    if kind == "NONE":
        return make(suffix)
    if kind not in ACTIVATIONS:
        raise node.unsupported("FusedActivationFunction", kind, f"NONE or one of {', '.join(ACTIVATIONS)}")
    return node.apply(ACTIVATIONS[kind](), [make(f"{suffix}_linear" if suffix else "linear")], suffix)


def activation_name(options: Options) -> str:
    """The activation that the options name, as the schema calls it."""
    number = options.integer("FusedActivationFunction")
    return _NAMES.get(number, f"number {number}")
