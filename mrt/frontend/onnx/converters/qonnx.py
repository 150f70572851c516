"""QONNX: quantizers of any number of bits and any rounding, as Brevitas, QKeras and FINN write them.

Of data each is a quantize and a dequantize, of a constant the integers that it makes, with their scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, Value, converter
from mrt.frontend.shared.quantized import QuantizedConstant, dequantized_constant
from mrt.frontend.shared.quantizing import Scale, dequantized, scale_for
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.integer import Quantize
from mrt.symbol.rounding import HALF_EVEN, SIGN
from mrt.symbol.types import narrowest_dtype

_DOMAINS = ("onnx.brevitas", "finn.custom_op.general", "qonnx.custom_op.general")
_DATA_BITS, _CONSTANT_BITS = 24, 32
"""The widest integers of data, all of which float32 tells apart, and of constants, such as biases."""
_ROUNDINGS = {
    "ROUND": HALF_EVEN,
    "HALF_EVEN": HALF_EVEN,
    "CEIL": "ceil",
    "FLOOR": "floor",
    "UP": "away_from_zero",
    "DOWN": "toward_zero",
    "ROUND_TO_ZERO": "toward_zero",
    "HALF_UP": "half_away_from_zero",
    "HALF_DOWN": "half_toward_zero",
}


def _named(operator: str) -> tuple[str, ...]:
    return tuple(f"{domain}.{operator}" for domain in _DOMAINS)


@dataclass(frozen=True)
class _Quantizer:
    """scale (clip(round(x / scale + zero_point), lo, hi) - zero_point)."""

    scale: Scale
    lo: int
    hi: int
    rounding: str

    @property
    def operator(self) -> Quantize:
        first = bool(self.scale.zero_point.any())
        return Quantize(
            a_min=self.lo,
            a_max=self.hi,
            dtype=narrowest_dtype(self.lo, self.hi),
            rounding=self.rounding,
            zero_point_first=first,
        )


@converter(*_named("Quant"), *_named("IntQuant"))
def quant(node: Node) -> Value:
    """Of one bit and signed it has the values -scale and scale, as the reference computes it."""
    bits = _bits(node, 3, "bitwidth")
    signed, narrow = bool(node.integer("signed", 1)), bool(node.integer("narrow", 0))
    scale = _scale(node, 1, 2)
    if bits == 1 and signed:
        return _quantized(node, _Quantizer(scale, -1, 1, SIGN))
    return _quantized(node, _Quantizer(scale, *_limits(bits, signed, narrow), _rounding(node, "ROUND")))


@converter(*_named("BipolarQuant"))
def bipolar_quant(node: Node) -> Value:
    return _quantized(node, _Quantizer(_scale(node, 1), -1, 1, SIGN))


@converter(*_named("Trunc"))
def trunc(node: Node) -> Symbol:
    """The integers of the data divided by a power of two and rounded, version 1 or 2 of the operator.

    q = round(x / scale + zero_point), y = round'(q / 2^n): version 1 has n = in_bits - out_bits and gives
    scale (y - zero_point), version 2 2^n = out_scale / scale and out_scale (clip(y) - zero_point / 2^n).
    """
    has_scale = node.has(5)
    wide, bits = _bits(node, 3, "in_bitwidth"), _bits(node, 5 if has_scale else 4, "out_bitwidth")
    given = _scale(node, 1, 2)
    by, result = wide - bits, given
    if has_scale:
        ratio = np.log2(node.known(4, "out_scale").astype(np.float64) / given.scale)
        by = int(np.rint(ratio).reshape(-1)[0])
        if (np.rint(ratio) != by).any():
            raise node.unsupported("the ratio of its scales", "not one number", "one power of two")
        zero_point = given.zero_point / 2.0**by
        if (zero_point != np.rint(zero_point)).any():
            raise node.unsupported("the zero point of its output", f"{zero_point.reshape(-1)[0]:g}", "an integer")
        out_scale = np.broadcast_to(node.known(4, "out_scale").astype(np.float32), given.scale.shape)
        result = replace(given, scale=out_scale, zero_point=zero_point.astype(given.zero_point.dtype))
    if by < 0:
        raise node.unsupported("what it drops", f"{by} bits", "0 or more")
    lo, hi = _limits(wide, True, False)[0], _limits(wide, False, False)[1]
    integers = _integers(node, node.symbol(0), _Quantizer(given, lo, hi, HALF_EVEN), "integers")
    whole = _scale_of_integers(1.0)
    limits = lo >> by, (hi >> by) + 1
    if has_scale:
        limits = _limits(bits, bool(node.integer("signed", 1)), bool(node.integer("narrow", 0)))
    real = dequantized(node, integers, whole, "whole")
    truncated = _Quantizer(_scale_of_integers(2.0**by), *limits, _rounding(node, "FLOOR"))
    return dequantized(node, _integers(node, real, truncated, "truncated"), result)


@converter(*_named("FloatQuant"))
def float_quant(node: Node) -> Value:
    raise node.unsupported("its result", "rounded to floats of few bits", "rounding to integers, as by IntQuant,")


@converter(*_named("MultiThreshold"))
def multi_threshold(node: Node) -> Value:
    raise node.unsupported(
        "the quantizer", "a list of thresholds", "the model before it was streamlined, which has Quant instead,"
    )


def _bits(node: Node, index: int, role: str) -> int:
    """A number of bits, which may be a float and one for each channel, as long as they are the same."""
    values = node.known(index, role)
    found = float(values.reshape(-1)[0]) if values.size else 0.0
    most = _DATA_BITS if isinstance(node.input(0), Symbol) else _CONSTANT_BITS
    if (values != found).any() or found != np.rint(found) or not 1 <= found <= most:
        shown = f"{found:g}" if values.size and (values == found).all() else "several numbers"
        raise node.unsupported(f"input {role}", shown, f"one whole number from 1 to {most}")
    return int(found)


def _limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """The least and the greatest integer; narrow leaves out the least of signed ones, the greatest of others."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _rounding(node: Node, default: str) -> str:
    mode = node.text("rounding_mode", default).upper()
    if mode not in _ROUNDINGS:
        raise node.unsupported("attribute rounding_mode", mode[:40], f"one of {', '.join(_ROUNDINGS)}")
    return _ROUNDINGS[mode]


def _scale(node: Node, index: int, zero_index: int | None = None) -> Scale:
    """Scale and zero point as they broadcast to the data: NumPy's rule."""
    scale = node.known(index, "scale").astype(np.float32)
    zero = np.zeros((), np.float32) if zero_index is None else node.known(zero_index, "zeropt").astype(np.float64)
    if not np.isfinite(zero).all() or (zero != np.rint(zero)).any() or np.abs(zero).max(initial=0) >= 2**_DATA_BITS:
        raise node.unsupported("the zero point", f"{zero.reshape(-1)[0]:g}", f"an integer of {_DATA_BITS} bits")
    shape = node.shape(0)
    try:
        both = np.broadcast_shapes(scale.shape, zero.shape)
        fits = np.broadcast_shapes(both, shape) == shape
    except ValueError:
        both, fits = scale.shape, False
    if not fits:
        raise GraphError(
            f"{node.label}: scale of shape {scale.shape} and zero point of shape {zero.shape} for a tensor of shape "
            f"{shape}; shapes that broadcast to it are needed"
        )
    ranked = () if int(np.prod(both)) == 1 else (1,) * (len(shape) - len(both)) + both
    scales, zeros = (
        np.broadcast_to(value.reshape(-1)[0] if ranked == () else value, ranked) for value in (scale, zero)
    )
    return scale_for(node, shape, scales, zeros.astype(np.int32), "int32", 0)


def _scale_of_integers(step: float) -> Scale:
    return Scale(np.asarray(step, np.float32), np.zeros((), np.int32), "int32")


def _quantized(node: Node, quantizer: _Quantizer) -> Value:
    """The node's data rounded; of a constant a quantized constant."""
    data = node.input(0)
    if isinstance(data, Symbol):
        return dequantized(node, _integers(node, data, quantizer, "integers"), quantizer.scale)
    constant = _constant(data, quantizer)
    if constant is None:
        raise node.unsupported("the data", f"a constant of {data.dtype}", "a constant of floats")
    values = constant.values()
    node.scope.keep_quantized(values, constant)
    return values


def _integers(node: Node, data: Symbol, quantizer: _Quantizer, suffix: str) -> Symbol:
    if not data.type.is_float:
        raise node.unsupported("the data", data.type, "a float")
    scale = quantizer.scale
    inputs = [data, node.parameter(scale.scale, f"{suffix}_scale"), node.parameter(scale.zero_point, f"{suffix}_zero")]
    return node.apply(quantizer.operator, inputs, suffix)


def _constant(data: Array, quantizer: _Quantizer) -> QuantizedConstant | None:
    if data.dtype.kind != "f":
        return None
    scale, operator = quantizer.scale, quantizer.operator
    integers = operator.evaluate(data.astype(np.float32), scale.scale, scale.zero_point)
    return dequantized_constant(integers.astype(operator.dtype), scale.scale, scale.zero_point)
