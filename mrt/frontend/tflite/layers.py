"""Weights and biases of a quantized layer as TFLite's kernels take them, whatever scales the file says beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mrt.frontend.tflite.files import StoredOperator, Tensor

_PLACES = {
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}
"""Which inputs are the data, the weight and the bias."""


def as_computed(tensors: Sequence[Tensor], operator: StoredOperator, place: int) -> Tensor:
    """An input of an operator as its kernel takes it.

    Case 1: the bias of a quantized layer is integers of the accumulator, whose scale is that of the data times that of
    the weight; the kernels do not read the scale that the file says, nor its axis. Case 2: the weight of a layer of
    int16 with a bias of int64 has the scale with which the layer's multiplier is the one that the kernel rescales by,
    of 15 bits. Case 3: anything else is as the file says.
    """
    tensor = tensors[operator.inputs[place]]
    data, weight, bias = _PLACES.get(operator.kind, (-1, -1, -1))
    given = [index for index in (data, weight) if 0 <= index < len(operator.inputs) and operator.inputs[index] >= 0]
    if place not in (weight, bias) or len(given) < 2:
        return tensor
    source, kernel = (tensors[operator.inputs[index]] for index in given)
    if not source.is_quantized or not kernel.is_quantized or len(source.scales) != 1:
        return tensor
    scales = kernel.scales
    if _rescales_short(tensors, operator, bias):
        result = tensors[operator.outputs[0]].scales[0]
        scales = tuple(_short(scale, source.scales[0] / result) for scale in scales)
    if place == weight:
        return replace(tensor, scales=scales)
    if tensor.kind not in ("INT32", "INT64"):
        return tensor
    return replace(tensor, scales=tuple(source.scales[0] * scale for scale in scales), zero_points=(0,), channel_axis=0)


def _rescales_short(tensors: Sequence[Tensor], operator: StoredOperator, bias: int) -> bool:
    """Whether the kernel sums up in 64 bits and rescales by multipliers of 15."""
    result = tensors[operator.outputs[0]]
    if result.kind != "INT16" or not result.is_quantized or not 0 <= bias < len(operator.inputs):
        return False
    return operator.inputs[bias] >= 0 and tensors[operator.inputs[bias]].kind == "INT64"


def _short(scale: float, factor: float) -> float:
    """The scale near `scale` whose product with `factor` has 15 bits: 31 rounded ones, of which the lowest 16 are
    rounded off, at most 32,767 / 32,768.
    """
    product = scale * factor
    if not (math.isfinite(product) and product > 0):
        return scale
    fraction, exponent = math.frexp(product)
    whole = math.floor(fraction * 2.0**31 + 0.5)
    if whole == 2**31:
        whole, exponent = whole // 2, exponent + 1
    short = (whole + 2**15) >> 16 if whole < 0x7FFF0000 else 0x7FFF
    return float(np.ldexp(short / factor, exponent - 15))
