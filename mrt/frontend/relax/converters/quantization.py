"""Quantize and dequantize with constant scales."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.quantized import QuantizedConstant, dequantized_constant
from mrt.frontend.shared.quantizing import Scale, dequantized, quantized, scale_for
from mrt.symbol import Array, Symbol

_MATRIX = 2
"""The least number of axes of a weight."""


@converter("quantize")
def quantize(node: Node) -> Symbol:
    """Halves are rounded to the even integer, as PyTorch has it."""
    return quantized(node, node.symbol(0), _scale(node, str(node.call.ty.dtype)))


@converter("dequantize")
def dequantize(node: Node) -> Symbol:
    data = node.symbol(0)
    return dequantized(node, data, _scale(node, data.dtype))


def _scale(node: Node, kind: str) -> Scale:
    scale, zero = node.known(1, "scale"), node.known(2, "zero point")
    return scale_for(node, node.shape(0), scale.astype(np.float32), zero, kind, node.integer("axis"))


def quantized_form(node: Node) -> QuantizedConstant | None:
    """The quantized constant that a dequantize of constants is."""
    stored = node.known(0, "data")
    found = _scale(node, stored.dtype.name)
    return dequantized_constant(stored, found.scale, found.zero_point)


def stored_form(node: Node, real: Array) -> QuantizedConstant | None:
    """The quantized constant that a cast of a matrix of 8 bits to floats is, as a weight is stored; None of others."""
    stored = node.known(0, "data")
    if stored.dtype.name not in ("int8", "uint8") or stored.ndim < _MATRIX or real.dtype.kind != "f":
        return None
    return dequantized_constant(stored, np.ones((), np.float32), np.zeros((), np.int8))
