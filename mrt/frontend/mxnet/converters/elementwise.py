"""Elementwise operators that take a record of another name: activations, quotients, comparisons, casts."""

from __future__ import annotations

import math

import numpy as np

from mrt.frontend.mxnet.node import Node, converter, is_float
from mrt.frontend.shared.comparison import COMPARISONS, compared
from mrt.frontend.shared.powers import powered
from mrt.symbol import Symbol
from mrt.symbol.operator import find_operator
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.broadcast import BroadcastDiv, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseSub
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.scalar import DivScalar, MinusScalar
from mrt.symbol.types import FLOAT_DTYPES, INTEGER_DTYPES

_ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign", "mish")
"""The act_types of Activation, which are operators of the same names."""


@converter("Activation")
def activation(node: Node) -> Symbol:
    kind = node.text("act_type", "not given")
    if kind not in _ACTIVATIONS:
        raise node.unsupported("attribute act_type", kind, f"one of {', '.join(_ACTIVATIONS)}")
    return node.apply(find_operator(kind)(), [node.only_symbol()])


@converter("LeakyReLU")
def leaky_relu(node: Node) -> Symbol:
    """rrelu, whose slope is drawn while training, has the mean of its bounds in use."""
    kind = node.text("act_type", "leaky")
    if kind == "rrelu":
        slope = (node.number("lower_bound", 0.125) + node.number("upper_bound", 0.334)) / 2
        return node.apply(LeakyReLU(slope=slope), [node.only_symbol()])
    if kind not in LeakyReLU.kinds:
        raise node.unsupported("attribute act_type", kind, f"one of {', '.join((*LeakyReLU.kinds, 'rrelu'))}")
    return node.apply(node.record(), node.symbols())


@converter("elemwise_div", "_div", "_Div")
def divide(node: Node) -> Symbol:
    return node.apply(BroadcastDiv(), [node.symbol(0), node.symbol(1)])


@converter("_contrib_div_sqrt_dim")
def divide_by_root_of_length(node: Node) -> Symbol:
    data = node.only_symbol()
    return node.apply(DivScalar(math.sqrt(data.shape[-1])), [data])


@converter("Cast", "cast", "amp_cast")
def cast(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    data, target = node.only_symbol(), node.text("dtype", "not given")
    dtype = "float32" if target in FLOAT_DTYPES | {"bfloat16"} else target
    if dtype == data.dtype:
        return data
    if dtype != "float32" and dtype not in INTEGER_DTYPES:
        raise node.unsupported(
            "attribute dtype", target, f"a float type, or one of {', '.join(sorted(INTEGER_DTYPES))}"
        )
    return node.apply(Cast(dtype=dtype), [data])


@converter("broadcast_power", "_power", "_Power")
def power(node: Node) -> Symbol:
    return powered(node)


_TWO_TENSORS = {form: name for name in COMPARISONS for form in (f"_{name}", f"broadcast_{name}")}
_WITH_A_NUMBER = {f"_{name}_scalar": name for name in COMPARISONS}


@converter(*_TWO_TENSORS)
def compare(node: Node) -> Symbol:
    lhs, rhs = node.symbol(0), node.symbol(1)
    operator = ElemwiseSub() if lhs.shape == rhs.shape else BroadcastSub()
    return compared(node, node.apply(operator, [lhs, rhs], "difference"), _TWO_TENSORS[node.operator])


@converter(*_WITH_A_NUMBER)
def compare_with_a_number(node: Node) -> Symbol:
    """The number is one of the data's dtype, as in MXNet: float32."""
    data, number = node.only_symbol(), node.number("scalar")
    rounded = float(np.float32(number)) if is_float(node.input(0)) else number
    difference = node.apply(MinusScalar(rounded), [data], "difference")
    return compared(node, difference, _WITH_A_NUMBER[node.operator])
