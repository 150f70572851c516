"""Weights that NNCF and OpenVINO store as integers: Constant → Convert → Subtract → Multiply, seen from their end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino

from mrt.frontend.openvino.files import array_of, element_type, static_shape, tensor_of
from mrt.frontend.shared.quantized import QuantizedConstant, dequantized_constant, fake_quantized_constant
from mrt.symbol import Array

_STORED = {"u4": (0, 15), "i4": (-8, 7), "u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767)}
"""The integers that stand for weights, with the least and the largest."""


def compressed_constant(operator: openvino.Node) -> QuantizedConstant | None:
    """The weight that a Multiply of constants gives: scale (stored - zero point); None where it is none.

    A zero point that is no integer is kept exactly: as a FakeQuantize that changes none of the values.
    """
    if operator.get_type_name() != "Multiply":
        return None
    for place in (0, 1):
        scaled = _below_casts(operator.input_value(place))
        scale = _constant(operator.input_value(1 - place))
        zero: Array | None = np.zeros((), np.int8)
        if scaled.get_type_name() == "Subtract":
            zero = _constant(scaled.input_value(1))
            scaled = _below_casts(scaled.input_value(0))
        if scale is None or zero is None or scaled.get_type_name() != "Constant":
            continue
        kind = element_type(scaled.output(0))
        if kind in _STORED and scale.dtype.kind == "f":
            shape = static_shape(operator.output(0), "weight")
            stored = array_of(tensor_of(scaled), "weight")
            return _form(stored, scale, zero, _STORED[kind]) if stored.shape == shape else None
    return None


def moved_constant(operator: openvino.Node, constant: QuantizedConstant | None) -> QuantizedConstant | None:
    """A quantized constant behind an operator that moves its elements; None behind any other."""
    if constant is None:
        return None
    move = _moves(operator)
    return None if move is None else constant.moved(move)


def _moves(operator: openvino.Node) -> Callable[[Array], Array] | None:
    kind, shape = operator.get_type_name(), static_shape(operator.output(0), "weight")
    if kind in ("Reshape", "Squeeze", "Unsqueeze"):
        return lambda array: array.reshape(shape)
    if kind == "Convert" and element_type(operator.output(0)) in ("f16", "f32", "bf16"):
        return lambda array: array
    if kind == "Transpose":
        order = _constant(operator.input_value(1))
        axes = None if order is None or not order.size else order.tolist()
        return lambda array: array.transpose(axes)
    return None


def _form(stored: Array, scale: Array, zero: Array, ends: tuple[int, int]) -> QuantizedConstant | None:
    if zero.dtype.kind != "f":
        return dequantized_constant(stored, scale, zero)
    whole = np.rint(zero)
    if np.array_equal(whole, zero) and np.abs(whole).max(initial=0) < _LARGEST_ZERO_POINT:
        return dequantized_constant(stored, scale, whole.astype(np.int32))
    low, high = ((end - zero) * scale for end in ends)
    return fake_quantized_constant((stored - zero) * scale, (low, high, low, high), ends[1] - ends[0] + 1)


_LARGEST_ZERO_POINT = 2**24
"""Floats below it hold every integer."""


def _below_casts(output: openvino.Output) -> openvino.Node:
    """The operator that gives a value before it was cast."""
    node = output.get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return node


def _constant(output: openvino.Output) -> Array | None:
    """The values of a Constant, perhaps cast."""
    node = _below_casts(output)
    return array_of(tensor_of(node), "weight") if node.get_type_name() == "Constant" else None
