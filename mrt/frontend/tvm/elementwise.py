"""Elementwise operators: activations, arithmetic with broadcasting, and those that change nothing."""

from __future__ import annotations

import math

import numpy as np

from mrt.frontend.shared import remainders
from mrt.frontend.shared.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined, number_for
from mrt.frontend.shared.clipping import FLOAT_MAX, clipped
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.selection import MAXIMUM, MINIMUM
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.tvm.node import TVMNode, graph_dtype
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import MinimumScalar
from mrt.symbol.types import INTEGER_DTYPES


def prelu(node: TVMNode) -> Symbol:
    """max(x, 0) + alpha min(x, 0). Case 1: one known number for all channels. Case 2: known ones along axis 1.
    Case 3: ones along another axis, or computed ones: the formula itself.
    """
    data, slopes = node.symbol(0), node.array(1)
    if slopes is not None and np.unique(slopes).size == 1:
        return node.apply(LeakyReLU(slope=float(slopes.flat[0])), [data])
    axis = node.axis(node.integer("axis"), data.type.rank)
    if axis == 1 and slopes is not None:
        return node.apply(LeakyReLU(act_type="prelu"), [data, node.symbol(1, "gamma")])
    shape = (-1,) + (1,) * (data.type.rank - 1 - axis)
    if slopes is not None:
        alpha = node.parameter_of(1, "gamma", f"rank{len(shape)}", lambda value: value.reshape(shape))
    else:
        alpha = reshaped(node, node.symbol(1), (math.prod(node.shape(1)), *shape[1:]), "gamma")
    below = node.apply(MinimumScalar(0.0), [data], "below")
    scaled = node.apply(BroadcastMul(), [below, alpha], "scaled")
    return node.apply(BroadcastAdd(), [node.apply(Relu(), [data], "above"), scaled])


def extremum(node: TVMNode) -> Symbol:
    """The larger or smaller of two tensors; of a tensor and one number it is a clip that is open on one side."""
    is_maximum = node.kind == "maximum"
    for constant, data in ((1, 0), (0, 1)):
        end = number_for(node, constant, data)
        if end is not None:
            low, high = (end, FLOAT_MAX) if is_maximum else (-FLOAT_MAX, end)
            return merged_clip(node, node.symbol(data), low, high)
    return combined(node, MAXIMUM if is_maximum else MINIMUM)


def merged_clip(node: TVMNode, data: Symbol, low: float, high: float) -> Symbol:
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


_ARITHMETIC = {"add": ADD, "subtract": SUBTRACT, "multiply": MULTIPLY, "divide": DIVIDE}


def arithmetic(node: TVMNode) -> Symbol:
    return combined(node, _ARITHMETIC[node.kind])


def remainder(node: TVMNode) -> Symbol:
    """`mod` has the sign of the dividend, `floor_mod` that of the divisor."""
    return remainders.remainder(node, truncates=node.kind == "mod")


def whole_quotient(node: TVMNode) -> Symbol:
    """Rounded down."""
    return remainders.whole_quotient(node, truncates=False)


def negative(node: TVMNode) -> Symbol:
    return node.apply(MulScalar(-1.0), [node.symbol(0)])


def dropout(node: TVMNode) -> Value:
    """Dropout as it is in inference, which is nothing, with a mask of ones; the rate is kept."""
    data = node.symbol(0)
    mask = np.broadcast_to(np.float32(1), data.shape)
    return node.apply(Dropout(p=node.number("rate")), [data]), mask


def cast(node: TVMNode) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    data, dtype = node.symbol(0), graph_dtype(node.text("dtype"))
    if dtype == data.dtype:
        return data
    if dtype != "float32" and dtype not in INTEGER_DTYPES:
        raise node.unsupported("attribute dtype", dtype, "a float, signed integer, uint8 or bool")
    return node.apply(Cast(dtype=dtype), [data])
