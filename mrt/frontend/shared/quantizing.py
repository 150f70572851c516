"""Quantize and dequantize with scales for a tensor or along an axis, whatever the format gives them as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.quantized import STORAGE
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.integer import Dequantize, Quantize


@dataclass(frozen=True)
class Scale:
    """Scale and zero point, shaped to broadcast to the tensor that they are of; `kind` names its integers."""

    scale: Array
    zero_point: Array
    kind: str


def scale_for(
    node: ModelNode, shape: Sequence[int], scale: Array, zero_point: Array, kind: str, axis: int | None
) -> Scale:
    """Scale and zero point, integers of `kind`, for a tensor of this shape.

    axis: the one along which a vector of scales lies; None where a scale must be one number. Raises
    UnsupportedOperatorError for integers that graphs lack and scales that are not positive, GraphError where shapes do
    not fit.
    """
    if kind not in STORAGE:
        raise node.unsupported("the integers' type", kind, f"one of {', '.join(STORAGE)}")
    if not scale.size or not np.isfinite(scale).all() or scale.min() <= 0:
        raise node.unsupported("the scale", f"empty, not finite or not above 0 (shape {scale.shape})", "a positive one")
    if zero_point.size != scale.size:
        raise GraphError(
            f"{node.label}: scale of shape {scale.shape}, zero point of shape {zero_point.shape} are given"
        )
    column = column_shape(node, scale.shape, shape, axis)
    return Scale(scale.astype(np.float32).reshape(column), zero_point.astype(STORAGE[kind][0]).reshape(column), kind)


def column_shape(node: ModelNode, given: Sequence[int], shape: Sequence[int], axis: int | None) -> tuple[int, ...]:
    """The shape in which scales broadcast to a tensor: those of one axis lie along that."""
    if int(np.prod(given)) == 1:
        return ()
    if axis is not None and len(given) == 1:
        place = node.axis(axis, len(shape))
        if given[0] == shape[place]:
            return tuple(-1 if index == place else 1 for index in range(len(shape)))
    elif axis is not None and len(given) == len(shape) and np.broadcast_shapes(given, shape) == tuple(shape):
        return tuple(given)
    where = "one number is needed" if axis is None else f"one number, or a vector along axis {axis}, is needed"
    raise GraphError(f"{node.label}: scales of shape {tuple(given)} for a tensor of shape {tuple(shape)}; {where}")


def quantized(node: ModelNode, data: Symbol, scale: Scale) -> Symbol:
    """`data` as the integers of the node's first output."""
    dtype, low, high = STORAGE[scale.kind]
    inputs = [data, node.parameter(scale.scale, "scale"), node.parameter(scale.zero_point, "zero_point")]
    return node.apply(Quantize(a_min=low, a_max=high, dtype=dtype), inputs)


def dequantized(node: ModelNode, data: Symbol, scale: Scale, suffix: str = "") -> Symbol:
    """The real numbers that integers stand for."""
    lead = f"{suffix}_" if suffix else ""
    inputs = [
        data,
        node.parameter(scale.scale, f"{lead}scale"),
        node.parameter(scale.zero_point, f"{lead}zero_point"),
    ]
    return node.apply(Dequantize(), inputs, suffix)
