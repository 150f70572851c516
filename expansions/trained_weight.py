"""The weight of a reduction that comes with integers of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.quantization.constant_grids import ConstantGrid
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.weights import QuantizedWeight
from mrt.symbol import Array, Symbol

_BYTE = np.iinfo(np.int8)


def trained_weight(
    grid: ConstantGrid | None, op: Symbol, rows: Callable[[Array], Array], builder: IntegerBuilder
) -> QuantizedWeight | None:
    """The integers that the weight of `op` came with; None where it came with none, or with scales that no accumulator
    has.

    rows: brings an operand like the weight to output channels first. The products that one output channel adds up must
    have one scale. Zero points are taken off the integers where these then fit int8, or where an output channel has
    several; else integers of uint8 are moved to int8 with their zero point, and so is an output channel whose integers
    are few enough, such as those of int8 turned round.
    """
    if grid is None:
        return None
    shape = grid.integers.shape
    values = (grid.integers, grid.scale, grid.zero_point)
    integers, scale, zero_point = (rows(np.broadcast_to(value, shape)) for value in values)
    scales, zero_points = (value.reshape(len(integers), -1) for value in (scale, zero_point))
    if (scales != scales[:, :1]).any():
        builder.notes.append(
            f"{op.name} ({op.op}): {op.inputs[1].name} came quantized with a scale for each input channel, which sums "
            f"of products cannot have; it is quantized anew"
        )
        return None
    centred = integers - zero_point
    is_byte = bool(_BYTE.min <= centred.min(initial=0) and centred.max(initial=0) <= _BYTE.max)
    if is_byte or (zero_points != zero_points[:, :1]).any():
        integers, zero_points = centred, np.zeros_like(zero_points)
    elif integers.max(initial=0) > _BYTE.max and integers.min(initial=0) >= 0:
        half = -int(_BYTE.min)
        integers, zero_points = integers - half, zero_points - half
    else:
        integers, zero_points = _within_bytes(integers, zero_points)
    ones = np.ones(integers.shape[:2], np.int64)
    return QuantizedWeight(integers, scales[:, 0].copy(), zero_points[:, :1] * ones, ones)


def _within_bytes(integers: Array, zero_points: Array) -> tuple[Array, Array]:
    """Integers and zero points of output channels, both less by what brings each channel to int8; as they are where
    that is not possible for all."""
    rows = integers.reshape(len(integers), -1)
    excess = np.maximum(rows.max(axis=1, initial=0) - _BYTE.max, 0)
    if not excess.any() or (rows.min(axis=1, initial=0) - excess < _BYTE.min).any():
        return integers, zero_points
    shape = (-1,) + (1,) * (integers.ndim - 1)
    return integers - excess.reshape(shape), zero_points - excess[:, None]
