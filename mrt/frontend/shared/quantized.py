"""Constants that a model stores quantized stay so, wherever a reader moves their elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize

STORAGE: dict[str, tuple[str, int, int]] = {
    **{name: (name, int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("int8", "uint8", "int16", "int32")},
    "uint16": ("int32", 0, 2**16 - 1),
    "int4": ("int8", -8, 7),
    "uint4": ("uint8", 0, 15),
}
"""Integers that stand for real numbers in models: the dtype that holds them in a graph, the least and the largest."""


@dataclass(frozen=True)
class QuantizedConstant:
    """A constant as an elementwise operator on constants: Dequantize of integers, or FakeQuantize of floats.

    inputs: those of the operator. The first has the constant's shape, the others broadcast to it.
    """

    operator: Operator
    inputs: tuple[Array, ...]

    def values(self) -> Array:
        """What the constant is, float32."""
        return np.asarray(self.operator.evaluate(*self.inputs), np.float32)

    def moved(self, move: Callable[[Array], Array]) -> QuantizedConstant | None:
        """The constant with its elements as `move` arranges them; None where `move` does more than that.

        Which it does is told by what it makes of the elements' places and of their values.
        """
        values, stored = self.values(), self.inputs[0]
        places = move(np.arange(stored.size).reshape(stored.shape))
        inside = places.dtype.kind == "i" and places.size and places.min() >= 0 and places.max() < stored.size
        if not inside or not np.array_equal(move(values), values.reshape(-1)[places], equal_nan=True):
            return None
        others = (np.broadcast_to(value, stored.shape).reshape(-1)[places] for value in self.inputs[1:])
        return replace(self, inputs=(stored.reshape(-1)[places], *map(_shortest, others)))

    def scaled(self, factor: Array) -> QuantizedConstant | None:
        """The constant times positive floats that broadcast to it; None where it is no dequantize, or they are none."""
        stored = self.inputs[0]
        rank = max(stored.ndim, factor.ndim)
        broadcasts = rank == stored.ndim and all(
            length in (1, full) for length, full in zip(factor.shape[::-1], stored.shape[::-1], strict=False)
        )
        if not isinstance(self.operator, Dequantize) or not broadcasts or factor.dtype.kind != "f":
            return None
        if not (np.isfinite(factor) & (factor > 0)).all():
            return None
        scale = np.asarray(self.inputs[1].astype(np.float64) * factor, np.float32)
        return replace(self, inputs=(stored, scale, self.inputs[2]))


def dequantized_constant(stored: Array, scale: Array, zero_point: Array) -> QuantizedConstant | None:
    """scale (stored - zero_point), the latter two broadcast; None where these are no integers that graphs have."""
    if stored.dtype.name not in STORAGE or zero_point.dtype.name not in STORAGE:
        return None
    integers = (stored.astype(STORAGE[stored.dtype.name][0]), zero_point.astype(STORAGE[zero_point.dtype.name][0]))
    return QuantizedConstant(Dequantize(), (integers[0], scale.astype(np.float32), integers[1]))


def fake_quantized_constant(data: Array, limits: tuple[Array, ...], levels: int) -> QuantizedConstant:
    """`data` through FakeQuantize; limits: input_low, input_high, output_low and output_high, which broadcast."""
    return QuantizedConstant(
        FakeQuantize(levels=levels), (data.astype(np.float32), *(limit.astype(np.float32) for limit in limits))
    )


def holds_quantized(symbol: Symbol) -> bool:
    """Whether a symbol holds integers that a quantize gave, perhaps moved since."""
    while symbol.type.is_integer and not symbol.is_variable:
        if isinstance(symbol.operator, Quantize):
            return True
        symbol = symbol.inputs[0]
    return False


def _shortest(values: Array) -> Array:
    """The smallest array that broadcasts to these values: of size 1 along each axis on which they do not change."""
    for axis in range(values.ndim):
        first = values.take([0], axis)
        if np.array_equal(np.broadcast_to(first, values.shape), values):
            values = first
    return values.reshape(()) if values.size == 1 else values
