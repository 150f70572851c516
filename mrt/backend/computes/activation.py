"""Activations: relu, clips, LeakyReLU, tanh and sigmoid."""

from __future__ import annotations

import math

from tvm import te, tirx

from mrt.backend.computes.functions import elu, function, gelu, gelu_tanh, number
from mrt.backend.kernels.generic import transcendental
from mrt.backend.memory.storage import View
from mrt.backend.operators.clip_to import ClipTo
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise, inlined
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant
from mrt.symbol import Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import CUBIC, SELU_GAIN, SELU_SLOPE, Clip, LeakyReLU, Relu, Sigmoid, Tanh


@compute(Relu, kind=Kind.ELEMENTWISE)
def relu(symbol: Symbol, data: Tensor) -> View:
    if isinstance(data, View) and data.non_negative:
        return data
    if symbol.dtype == "bool":
        return elementwise(symbol, data, body=lambda x: x)
    return elementwise(symbol, data, body=lambda x: te.max(x, constant(0, symbol.dtype)))


@compute(Clip, kind=Kind.ELEMENTWISE)
def clip(symbol: Symbol[Clip], data: Tensor) -> View:
    operator, dtype = symbol.operator, symbol.dtype
    if isinstance(data, View) and data.non_negative and operator.a_max >= 0:
        # Unsigned, the lower limit changes nothing, and LLVM makes one saturating conversion of the upper one.
        wide = f"u{dtype}"
        # An upper limit that dtype sets itself is left out: it would keep TVM from that conversion.
        a_max = operator.a_max if operator.a_max < tirx.max_value(dtype).value else tirx.max_value(wide).value

        def element(x: Expression) -> Expression:
            return clipped(x.astype(wide), wide, operator.a_min, a_max).astype(dtype)

        return elementwise(symbol, data, body=element, non_negative=True)
    return elementwise(symbol, data, body=lambda x: clipped(x, dtype, operator.a_min, operator.a_max))


@compute(ClipTo, kind=Kind.ELEMENTWISE)
def clip_to(symbol: Symbol[ClipTo], data: Tensor, *limits: Tensor) -> View:
    sides = [te.max] * symbol.operator.has_least + [te.min] * symbol.operator.has_most
    stored = symbol.operator.stored

    def element(x: Expression, *ends: Expression) -> Expression:
        x = x.astype(symbol.dtype)
        for side, end in zip(sides, ends, strict=True):
            x = side(x, end)
        # No value is beyond these limits. With them the cast is one conversion that saturates.
        return clipped(x, symbol.dtype, *DTYPE_RANGES[stored]) if stored else x

    return elementwise(symbol, data, *limits, body=element)


def clipped(x: Expression, dtype: str, lo: float = -math.inf, hi: float = math.inf) -> Expression:
    """x limited to [lo, hi]; limits beyond an integer dtype are left out.

    Where one integer is left it is a constant: C's compilers warn of comparisons that have one outcome.
    """
    if dtype.startswith("float"):
        return te.min(te.max(x, constant(lo, dtype)), constant(hi, dtype))
    least, most = (0, 1) if dtype == "bool" else (tirx.min_value(dtype).value, tirx.max_value(dtype).value)
    for end, is_all in ((most, lo > most - 1), (least, hi < least + 1)):
        if is_all:
            return constant(end, dtype)
    if lo > least:
        x = te.max(x, constant(math.ceil(lo), dtype))
    return te.min(x, constant(math.floor(hi), dtype)) if hi < most else x


@compute(LeakyReLU, kind=Kind.ELEMENTWISE, random_access=(1,), repeats_input=True)
def leaky_relu(symbol: Symbol[LeakyReLU], data: Tensor, gamma: Tensor | None = None) -> Tensor:
    """The function that act_type names. gamma: the slopes of prelu, one for each channel or one for all.

    The padding of channels in memory takes the last slope.
    """
    operator, dtype = symbol.operator, symbol.dtype
    if not operator.is_linear:
        return function(symbol, data, lambda x: _curved(x, operator))
    zero = constant(0, dtype)

    def element(*at: Expression) -> Expression:
        slope = constant(operator.slope, dtype)
        if gamma is not None:
            last = int(gamma.shape[0]) - 1
            slope = gamma(te.min(at[1], constant(last, "int32")) if last else 0)
        return bind(data(*at), lambda x: tirx.Select(x > zero, x, slope * x))

    return inlined(symbol.shape, dtype, element)


def _curved(x: Expression, operator: LeakyReLU) -> Expression:
    match operator.act_type:
        case "elu":
            return elu(x, operator.slope)
        case "selu":
            return number(SELU_GAIN, x) * elu(x, SELU_SLOPE)
        case "gelu":
            return gelu(x)
    return gelu_tanh(x, CUBIC)


@compute(Tanh, kind=Kind.ELEMENTWISE, repeats_input=True)
def tanh(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, transcendental.tanh)


@compute(Sigmoid, kind=Kind.ELEMENTWISE, repeats_input=True)
def sigmoid(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, transcendental.sigmoid)
