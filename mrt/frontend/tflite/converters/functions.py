"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.tflite.activation import ACTIVATIONS
from mrt.frontend.tflite.layouts import channels_last, channels_second
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Exp,
    Floor,
    HardSwish,
    Log,
    RoundHalfEven,
    Rsqrt,
    Sign,
    Sqrt,
    Square,
)
from mrt.symbol.operators.periodic import Cos, Sin
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import MinimumScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = ACTIVATIONS | {
    "ABS": Abs,
    "CEIL": Ceil,
    "COS": Cos,
    "ELU": lambda: LeakyReLU(act_type="elu", slope=1.0),
    "EXP": Exp,
    "FLOOR": Floor,
    "HARD_SWISH": HardSwish,
    "LOG": Log,
    "LOGISTIC": Sigmoid,
    "NEG": lambda: MulScalar(-1.0),
    "ROUND": RoundHalfEven,
    "RSQRT": Rsqrt,
    "SIGN": Sign,
    "SIN": Sin,
    "SQRT": Sqrt,
    "SQUARE": Square,
}


@converter(*_FUNCTIONS)
def function(node: Node) -> Symbol:
    return node.apply(_FUNCTIONS[node.operator](), [node.symbol(0)])


@converter("LEAKY_RELU")
def leaky_relu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(slope=node.options("LeakyReluOptions").number("Alpha")), [node.symbol(0)])


@converter("GELU")
def gelu(node: Node) -> Symbol:
    kind = "gelu_tanh" if node.options("GeluOptions").flag("Approximate") else "gelu"
    return node.apply(LeakyReLU(act_type=kind), [node.symbol(0)])


@converter("PRELU")
def prelu(node: Node) -> Symbol:
    """max(x, 0) + alpha min(x, 0), alpha broadcast.

    Case 1: alpha is one known number. Case 2: one known number for each channel. Case 3: else the formula itself.
    """
    data, alpha, shape = node.symbol(0), node.array(1), node.shape(1)
    if alpha is not None and alpha.size and np.unique(alpha).size == 1 and len(shape) <= data.type.rank:
        return node.apply(LeakyReLU(slope=float(alpha.flat[0])), [data])
    if alpha is not None and data.type.rank > 1 and shape[-1:] == data.shape[-1:] == (alpha.size,):
        gamma = node.parameter_of(1, "gamma", "vector", lambda array: array.reshape(-1))
        inputs = [channels_second(node), gamma]
        operator = LeakyReLU(act_type="prelu")
        return channels_last(node, data.type.rank, lambda suffix: node.apply(operator, inputs, suffix))
    negative = node.apply(MinimumScalar(0.0), [data], "negative")
    scaled = node.apply(BroadcastMul(), [negative, node.symbol(1, "alpha")], "scaled")
    if scaled.shape != data.shape:
        raise GraphError(f"{node.label}: alpha has shape {shape}, which does not broadcast to {data.type}")
    return node.apply(BroadcastAdd(), [node.apply(Relu(), [data], "positive"), scaled])
