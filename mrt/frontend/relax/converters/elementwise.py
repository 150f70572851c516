"""Elementwise Relax operators: activations, arithmetic with broadcasting, and those that change nothing."""

from __future__ import annotations

import numpy as np

from mrt.frontend.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined, number_for
from mrt.frontend.clipping import FLOAT_MAX, clipped
from mrt.frontend.node import Value
from mrt.frontend.relax.node import Node, converter, graph_dtype
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.types import INTEGER_DTYPES


@converter("nn.relu")
def relu(node: Node) -> Symbol:
    return node.apply(Relu(), [node.symbol(0)])


@converter("sigmoid")
def sigmoid(node: Node) -> Symbol:
    return node.apply(Sigmoid(), [node.symbol(0)])


@converter("tanh")
def tanh(node: Node) -> Symbol:
    return node.apply(Tanh(), [node.symbol(0)])


@converter("nn.leakyrelu")
def leaky_relu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(slope=node.number("alpha")), [node.symbol(0)])


@converter("nn.prelu")
def prelu(node: Node) -> Symbol:
    """max(x, 0) + alpha min(x, 0). Case 1: one known number for all channels. Case 2: one for each along axis 1."""
    data, slopes = node.symbol(0), node.array(1)
    if slopes is not None and np.unique(slopes).size == 1:
        return node.apply(LeakyReLU(slope=float(slopes.flat[0])), [data])
    axis = node.axis(node.integer("axis"), data.type.rank)
    if axis != 1:
        raise node.unsupported("attribute axis", axis, "axis 1")
    return node.apply(LeakyReLU(act_type="prelu"), [data, node.symbol(1, "gamma")])


@converter("nn.silu")
def silu(node: Node) -> Symbol:
    """x · sigmoid(x)."""
    data = node.symbol(0)
    return node.apply(ElemwiseMul(), [data, node.apply(Sigmoid(), [data], "sigmoid")])


@converter("square")
def square(node: Node) -> Symbol:
    data = node.symbol(0)
    return node.apply(ElemwiseMul(), [data, data])


@converter("clip")
def clip(node: Node) -> Symbol:
    return _merged_clip(node, node.symbol(0), node.known_number(1, "min"), node.known_number(2, "max"))


@converter("maximum", "minimum")
def extremum(node: Node) -> Symbol:
    """The larger or smaller of a tensor and one number, which is a clip that is open on one side."""
    for constant, data in ((1, 0), (0, 1)):
        end = number_for(node, constant, data)
        if end is not None:
            low, high = (end, FLOAT_MAX) if node.operator == "relax.maximum" else (-FLOAT_MAX, end)
            return _merged_clip(node, node.symbol(data), low, high)
    raise node.unsupported("the second operand", "a tensor", "one constant number")


def _merged_clip(node: Node, data: Symbol, low: float, high: float) -> Symbol:
    """`data` between `low` and `high`, the former winning where they cross.

    A clip of a relu or clip is made one clip where their intervals meet. An open end is float32's own.
    """
    low, high = max(low, -FLOAT_MAX), min(high, FLOAT_MAX)
    inner_low, inner_high = _range_of(data.operator)
    if max(low, inner_low) <= min(high, inner_high) and (inner_low, inner_high) != (-FLOAT_MAX, FLOAT_MAX):
        data, low, high = data.inputs[0], max(low, inner_low), min(high, inner_high)
    return clipped(node, data, low, max(low, high))


def _range_of(operator: Operator) -> tuple[float, float]:
    """The interval that an operator clips to."""
    if isinstance(operator, Relu):
        return 0.0, FLOAT_MAX
    if isinstance(operator, Clip):
        return operator.a_min, operator.a_max
    return -FLOAT_MAX, FLOAT_MAX


_ARITHMETIC = {"relax.add": ADD, "relax.subtract": SUBTRACT, "relax.multiply": MULTIPLY, "relax.divide": DIVIDE}


@converter("add", "subtract", "multiply", "divide")
def arithmetic(node: Node) -> Symbol:
    return combined(node, _ARITHMETIC[node.operator])


@converter("negative")
def negative(node: Node) -> Symbol:
    return node.apply(MulScalar(-1.0), [node.symbol(0)])


@converter("builtin.stop_lift_params", "hint_on_device", "to_vdevice")
def identity(node: Node) -> Value:
    return node.input(0)


@converter("nn.dropout")
def dropout(node: Node) -> Value:
    """Dropout as it is in inference, which is nothing, with a mask of ones; the rate is kept."""
    data = node.symbol(0)
    mask = np.broadcast_to(np.float32(1), data.shape)
    return node.apply(Dropout(p=node.number("rate")), [data]), mask


@converter("astype")
def astype(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here."""
    data, dtype = node.symbol(0), graph_dtype(node.text("dtype"))
    if dtype == data.dtype:
        return data
    if dtype != "float32" and (dtype not in INTEGER_DTYPES or data.type.is_float):
        raise node.unsupported("attribute dtype", f"{dtype} on {data.type}", "a cast between floats or from integers")
    return node.apply(Cast(dtype=dtype), [data])
