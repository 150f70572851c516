"""The two bytes of data of 16 bits, x = low + 256 · high, for machines whose fastest products are those of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.symbol import Array, Interval, Operator, TensorType

BYTE_BITS = 8
BYTE = 1 << BYTE_BITS


@dataclass(frozen=True)
class LowByte(Operator):
    """x modulo 256 of an int16 x, in uint8."""

    op = "low_byte"
    input_names = ("data",)
    is_elementwise = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype("uint8")

    def evaluate(self, x: Array) -> Array:
        low: Array = x & (BYTE - 1)
        return low

    def bounds(self, x: Interval) -> Interval:
        if x.min >= 0 and x.max < BYTE:
            return x
        return Interval.of(0, BYTE - 1, x.shape)


@dataclass(frozen=True)
class HighByte(Operator):
    """x / 256 of an int16 x, rounded down, in int8."""

    op = "high_byte"
    input_names = ("data",)
    is_elementwise = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype("int8")

    def evaluate(self, x: Array) -> Array:
        high: Array = x >> BYTE_BITS
        return high

    def bounds(self, x: Interval) -> Interval:
        return x.map(lambda bound: bound >> BYTE_BITS)


@dataclass(frozen=True)
class JoinBytes(Operator):
    """low + 256 · high in int16."""

    op = "join_bytes"
    input_names = ("low", "high")
    is_elementwise = True

    def infer(self, low: TensorType, high: TensorType) -> TensorType:
        return low.with_dtype("int16")

    def evaluate(self, low: Array, high: Array) -> Array:
        joined: Array = low.astype("int64") + BYTE * high.astype("int64")
        return joined

    def bounds(self, low: Interval, high: Interval) -> Interval:
        return Interval(low.lo + BYTE * high.lo, low.hi + BYTE * high.hi, low.shape)
