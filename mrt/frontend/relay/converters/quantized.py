"""The dialect qnn, and the fixed-point products that it is lowered to, in integers as exactly as Relay computes them.

A quantized value q stands for scale (q - zero_point).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.converters.linear import product
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.node import Value
from mrt.frontend.tvm import windows
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.functions import Negative, Round
from mrt.symbol.operators.integer import Cast, Dequantize, RightShift
from mrt.symbol.operators.scalar import MulScalar, PlusScalar
from mrt.symbol.operators.transform import Concat
from mrt.symbol.types import STORAGE_DTYPES

_FRACTION_BITS = 31
_LONGEST_SHIFT = 31


@converter("fixed_point_multiply")
def fixed_point_multiply(node: Node) -> Symbol:
    """x m 2^(shift - 31), rounded half up."""
    multiplier, shift = np.asarray(node.integer("multiplier")), np.asarray(node.integer("shift"))
    data = node.symbol(0)
    return node.cast(_scaled(node, data, multiplier, shift, _rounded), data.dtype)


@converter("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(node: Node) -> Symbol:
    """fixed_point_multiply with a multiplier and shifts to both sides for each element of one axis."""
    data, axes = node.symbol(0), node.sizes("axes")
    if len(axes) != 1:
        raise node.unsupported("attribute axes", axes, "one axis")
    left, right = (
        node.known(index, role).astype(np.int64) * node.flag(f"is_{role}_required")
        for index, role in ((2, "lshift"), (3, "rshift"))
    )
    column = _column(node, axes[0], data)
    multiplier = column(node.known(1, "multiplier").astype(np.int64))
    return node.cast(_scaled(node, data, multiplier, column(left - right), _rounded), data.dtype)


@converter("qnn.quantize")
def quantize(node: Node) -> Symbol:
    """clip(round(x / scale) + zero point), halves away from zero, which the operator quantize does not do."""
    data, dtype = node.symbol(0), node.out_dtype("out_dtype", "int8")
    column = _column(node, node.integer("axis"), data)
    scale = column(_scale(node, 1))
    quotient = node.apply(BroadcastDiv(), [data, node.parameter(scale.astype(np.float32), "scale")], "quotient")
    steps = node.apply(Round(), [quotient], "steps")
    zero = column(_zero_point(node, 2))
    if zero.any():
        steps = node.apply(BroadcastAdd(), [steps, node.parameter(zero.astype(np.float32), "zero_point")], "shifted")
    return _saturated(node, steps, dtype)


@converter("qnn.dequantize")
def dequantize(node: Node) -> Symbol:
    """(x - zero point) scale."""
    data = node.symbol(0)
    column = _column(node, node.integer("axis"), data)
    scale, zero = column(_scale(node, 1)), column(_zero_point(node, 2))
    node.out_dtype("out_dtype", "float32")
    parameter = node.parameter(scale.astype(np.float32), "scale")
    return node.apply(Dequantize(), [data, parameter, node.parameter(zero.astype(np.int32), "zero_point")])


@converter("qnn.requantize")
def requantize(node: Node) -> Symbol:
    """From the scale and zero point of inputs 1 and 2 to those of inputs 3 and 4."""
    data = node.symbol(0)
    rounding, compute = node.text("rounding"), node.text("compute_dtype")
    if compute not in ("None", "int64"):
        raise node.unsupported("attribute compute_dtype", compute, "int64")
    if rounding not in _ROUNDINGS:
        raise node.unsupported("attribute rounding", rounding, f"one of {[*_ROUNDINGS]}")
    column = _column(node, node.integer("axis"), data)
    source = column(_scale(node, 1)), column(_zero_point(node, 2))
    target = _number(node, 3, "output scale"), _integer(node, 4, "output zero point")
    return _saturated(node, _moved(node, data, source, target, rounding, ""), node.out_dtype("out_dtype", "int8"))


@converter("qnn.conv2d")
def convolution(node: Node) -> Symbol:
    """The convolution of data and weight without their zero points, at the product of the scales."""
    return node.cast(windows.convolution(_centered(node)), node.out_dtype("out_dtype", "int32"))


@converter("qnn.conv2d_transpose")
def deconvolution(node: Node) -> Symbol:
    return node.cast(windows.deconvolution(_centered(node)), node.out_dtype("out_dtype", "int32"))


@converter("qnn.dense")
def dense(node: Node) -> Symbol:
    return product(_centered(node), False, True)


@converter("qnn.batch_matmul")
def batch_matmul(node: Node) -> Symbol:
    return product(_centered(node), node.flag("transpose_a"), node.flag("transpose_b"))


@converter("qnn.add", "qnn.subtract")
def add(node: Node) -> Symbol:
    """Both operands brought to the scale of the output, then the sum or difference with its zero point."""
    scale, zero = _number(node, 6, "output scale"), _integer(node, 7, "output zero point")
    lhs, rhs = (_moved(node, node.symbol(i), _pair(node, 2 + 2 * i), (scale, 0), "UPWARD", f"side{i}") for i in (0, 1))
    operator = BroadcastAdd() if node.kind == "qnn.add" else BroadcastSub()
    total = _shifted(node, node.apply(operator, [lhs, rhs], "total"), zero, "shifted")
    return _saturated(node, total, node.symbol(0).dtype)


@converter("qnn.mul")
def multiply(node: Node) -> Symbol:
    """The product of both without zero points, brought from the product of the scales, a float32, to the output's."""
    (left, left_zero), (right, right_zero) = _pair(node, 2), _pair(node, 4)
    lhs = _without_zero(node, node.symbol(0), left_zero, "lhs")
    rhs = _without_zero(node, node.symbol(1), right_zero, "rhs")
    value = node.apply(BroadcastMul(), [lhs, rhs], "product")
    scale = (left.astype(np.float32) * right.astype(np.float32)).astype(np.float64)
    target = _number(node, 6, "output scale"), _integer(node, 7, "output zero point")
    moved = _moved(node, value, (scale, np.asarray(0)), target, "UPWARD", "")
    return _saturated(node, moved, node.symbol(0).dtype)


@converter("qnn.concatenate")
def concatenate(node: Node) -> Symbol:
    """Each part brought to the scale and zero point of the output."""
    parts = node.symbols(0, "part")
    scales, zeros = node.items(1), node.items(2)
    if not len(parts) == len(scales) == len(zeros):
        raise GraphError(f"{node.label}: {len(parts)} parts, {len(scales)} scales, {len(zeros)} zero points are given")
    target = _number(node, 3, "output scale"), _integer(node, 4, "output zero point")
    moved = []
    for index, part in enumerate(parts):
        own = replace(node, inputs=(scales[index], zeros[index]), name=f"{node.name}_part{index}")
        value = _moved(own, part, _pair(own, 0), target, "UPWARD", "")
        moved.append(_saturated(own, value, part.dtype))
    return node.apply(Concat(dim=node.axis(node.integer("axis"), parts[0].type.rank)), moved)


# Reading scales and zero points


def _scale(node: Node, index: int) -> Array:
    """A known scale, or one for each channel, in float64."""
    scale = node.known(index, "scale").astype(np.float64)
    if scale.ndim > 1 or not scale.size or not np.isfinite(scale).all() or scale.min() <= 0:
        raise node.unsupported(
            "input scale", f"of shape {scale.shape} or not above 0", "one or a vector, finite and above 0,"
        )
    return scale


def _zero_point(node: Node, index: int) -> Array:
    zero = node.known(index, "zero point")
    if zero.ndim > 1 or not zero.size or zero.dtype.kind not in "iu":
        raise node.unsupported(
            "input zero point", f"{zero.dtype} of shape {zero.shape}", "an integer or a vector of them"
        )
    return zero.astype(np.int64)


def _pair(node: Node, index: int) -> tuple[Array, Array]:
    """Scale and zero point of a whole tensor."""
    return np.asarray(_number(node, index, "scale")), np.asarray(_integer(node, index + 1, "zero point"))


def _number(node: Node, index: int, role: str) -> float:
    scale = _scale(node, index)
    if scale.size != 1:
        raise node.unsupported(f"input {role}", f"of shape {scale.shape}", "one number")
    return float(scale.reshape(()))


def _integer(node: Node, index: int, role: str) -> int:
    zero = _zero_point(node, index)
    if zero.size != 1:
        raise node.unsupported(f"input {role}", f"of shape {zero.shape}", "one integer")
    return int(zero.reshape(()))


def _column(node: Node, axis: int, data: Symbol) -> Callable[[Array], Array]:
    """Makes numbers for each element of an axis broadcast to the data; one number stays as it is."""

    def column(value: Array) -> Array:
        if value.size == 1:
            return value.reshape(())
        place = node.axis(axis, data.type.rank)
        if value.shape != (data.shape[place],):
            raise GraphError(f"{node.label}: numbers of shape {value.shape} along axis {place} of {data.type}")
        return value.reshape(-1, *(1,) * (data.type.rank - place - 1))

    return column


# Integer arithmetic


def _centered(node: Node) -> Node:
    """The node of a product, its first two inputs without their zero points (inputs 2 and 3)."""
    data, zero = node.symbol(0), np.asarray(_integer(node, 2, "input zero point"))
    own = node.array(1)
    kernel_zero = np.asarray(_integer(node, 3, "kernel zero point"))
    if own is None:
        second: Value = _without_zero(node, node.symbol(1), kernel_zero, "kernel_centered")
    else:
        second = own if not kernel_zero.any() else (own.astype(np.int64) - kernel_zero).astype(np.int32)
    return replace(node, inputs=(_without_zero(node, data, zero, "centered"), second))


def _without_zero(node: Node, data: Symbol, zero: Array, suffix: str) -> Symbol:
    if not zero.any():
        return data
    if zero.size == 1:
        return _shifted(node, data, -int(zero.reshape(())), suffix)
    return node.apply(BroadcastSub(), [data, node.parameter(zero.astype(np.int32), f"{suffix}_zero")], suffix)


def _shifted(node: Node, data: Symbol, by: int, suffix: str) -> Symbol:
    return node.apply(PlusScalar(float(by)), [data], suffix) if by else data


def _moved(
    node: Node,
    data: Symbol,
    source: tuple[Array, Array],
    target: tuple[float, int],
    rounding: str,
    prefix: str,
) -> Symbol:
    """(data - zero) scale / target scale, rounded, plus the target's zero point, in 64 bits."""
    names = [f"{prefix}_{word}" if prefix else word for word in ("centered", "scaled", "moved")]
    scale, zero = source
    wide = data if data.dtype == "int64" else node.apply(Cast(dtype="int64"), [data], names[0] + "_wide")
    centered = _without_zero(node, wide, zero, names[0])
    if scale.size == 1 and float(scale.reshape(())) == target[0]:
        return _shifted(node, centered, target[1], names[2])
    multiplier, shift = _fixed_point(scale / target[0])
    scaled = _scaled(replace(node, name=f"{node.name}_{names[1]}"), centered, multiplier, shift, _ROUNDINGS[rounding])
    return _shifted(node, scaled, target[1], names[2])


def _fixed_point(factor: Array) -> tuple[Array, Array]:
    """Integers m and s with m 2^(s - 31) the factor nearest to the given one, 2^30 <= m < 2^31."""
    fraction, exponent = np.frexp(factor)
    multiplier = np.floor(fraction * 2.0**_FRACTION_BITS + 0.5).astype(np.int64)
    full = multiplier == 2**_FRACTION_BITS
    return np.where(full, multiplier // 2, multiplier), np.where(full, exponent + 1, exponent).astype(np.int64)


_Rounding = Callable[[Node, Symbol, Array], Symbol]


def _scaled(node: Node, data: Symbol, multiplier: Array, shift: Array, rounded: _Rounding) -> Symbol:
    """data m 2^(shift - 31) in 64 bits, rounded."""
    total = _FRACTION_BITS - shift.astype(np.int64)
    if total.min() < 0 or total.max() > 2 * _LONGEST_SHIFT:
        raise node.unsupported("the shift", f"{int(total.max())} bits", f"0 to {2 * _LONGEST_SHIFT}")
    wide = data if data.dtype == "int64" else node.apply(Cast(dtype="int64"), [data], "wide")
    if multiplier.size == 1:
        value = node.apply(MulScalar(float(multiplier.reshape(()))), [wide], "product")
    else:
        value = node.apply(BroadcastMul(), [wide, node.parameter(multiplier.astype(np.int64), "multiplier")], "product")
    return rounded(node, value, total)


def _rounded(node: Node, data: Symbol, total: Array) -> Symbol:
    """floor(data / 2^total + 1/2). What exceeds the longest shift is shifted before, rounding down."""
    excess, shift = np.maximum(total - _LONGEST_SHIFT, 0), np.minimum(total, _LONGEST_SHIFT)
    if excess.any():
        # right_shift rounds half up: less one half it rounds down.
        half = np.where(excess > 0, np.left_shift(1, np.maximum(excess - 1, 0)), 0).astype(np.int64)
        lowered = node.apply(BroadcastSub(), [data, node.parameter(half, "half")], "lowered")
        data = node.apply(RightShift(), [lowered, node.parameter(excess.astype(np.int32), "excess")], "coarse")
    return node.apply(RightShift(), [data, node.parameter(shift.astype(np.int32), "shift")], "rounded")


def _rounded_away(node: Node, data: Symbol, total: Array) -> Symbol:
    """data / 2^total to the nearest, halves away from zero: both signs apart."""
    positive = _rounded(replace(node, name=f"{node.name}_positive"), node.apply(Relu(), [data], "above"), total)
    opposite = node.apply(Negative(), [data], "opposite")
    negative = _rounded(replace(node, name=f"{node.name}_negative"), node.apply(Relu(), [opposite], "below"), total)
    return node.apply(BroadcastSub(), [positive, negative], "nearest")


_ROUNDINGS: dict[str, _Rounding] = {"None": _rounded, "UPWARD": _rounded, "TONEAREST": _rounded_away}


def _saturated(node: Node, data: Symbol, dtype: str) -> Symbol:
    """`data` clipped to a dtype, and in it."""
    if dtype not in STORAGE_DTYPES:
        raise node.unsupported("attribute out_dtype", dtype, f"one of {[*STORAGE_DTYPES]}")
    limits = np.iinfo(dtype)
    clipped = node.apply(Clip(a_min=float(limits.min), a_max=float(limits.max)), [data], "clipped")
    return node.apply(Cast(dtype=dtype), [clipped])
