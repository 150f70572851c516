"""Operators of integer graphs: shifts, casts, and the steps between float and integer."""

from __future__ import annotations

import numpy as np

from mrt.errors import DataError, GraphError
from mrt.symbol.interval import Array, Interval, multiply, subtract
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float, require_integer
from mrt.symbol.operators._intervals import product, subtracted
from mrt.symbol.rounding import HALF_EVEN, ROUNDINGS, rounded_steps
from mrt.symbol.types import DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, TensorType, arithmetic_dtype, broadcast_shape

_MAX_SHIFT = 31


def _infer_shift(x: TensorType, shift: TensorType) -> TensorType:
    require_integer(x)
    require_integer(shift)
    return TensorType(broadcast_shape(x, shift), arithmetic_dtype(x))


def _checked_shift(shift: Array) -> Array:
    shift = shift.astype(np.int64)
    if shift.size and (shift.min() < 0 or shift.max() > _MAX_SHIFT):
        raise GraphError(f"shifts are in [{shift.min()}, {shift.max()}]; 0 to {_MAX_SHIFT} are needed")
    return shift


def _shape(x: Interval, shift: Interval) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(x.shape, shift.shape))


@operator("right_shift")
class RightShift(Operator):
    """x / 2^shift rounded half up: x for a shift of 0, else ((x >> (shift - 1)) + 1) >> 1 with arithmetic shifts.

    0 <= shift <= 31, a tensor that broadcasts. Gives int32.
    """

    input_names = ("data", "shift")

    def infer(self, x: TensorType, shift: TensorType) -> TensorType:
        return _infer_shift(x, shift)

    def evaluate(self, x: Array, shift: Array) -> Array:
        return _round_half_up(x.astype(np.int64), _checked_shift(shift))

    def bounds(self, x: Interval, shift: Interval) -> Interval:
        # A longer shift brings the value nearer to 0, so that the extremes lie at the shift's ends.
        shortest, longest = _checked_shift(shift.lo), _checked_shift(shift.hi)
        lo = np.minimum(_round_half_up(x.lo, shortest), _round_half_up(x.lo, longest))
        hi = np.maximum(_round_half_up(x.hi, shortest), _round_half_up(x.hi, longest))
        return Interval.of(lo, hi, _shape(x, shift))

    def intermediates(self, x: Interval, shift: Interval) -> tuple[Interval, ...]:
        """(x >> (shift - 1)) + 1, where something is shifted."""
        shortest, longest = _checked_shift(shift.lo), _checked_shift(shift.hi)
        # A shift of 1 is the largest sum; one of 0 makes none.
        shifts = (shortest, np.clip(1, shortest, longest), longest)
        lows, highs = ([(bound >> np.maximum(s - 1, 0)) + (s > 0) for s in shifts] for bound in (x.lo, x.hi))
        return (Interval.of(np.minimum.reduce(lows), np.maximum.reduce(highs), _shape(x, shift)),)


def _round_half_up(x: Array, shift: Array) -> Array:
    """((x >> (shift - 1)) + 1) >> 1, or x for a shift of 0, without the sum that could overflow."""
    dropped = np.where(shift > 0, (x >> np.maximum(shift - 1, 0)) & 1, 0)
    result: Array = (x >> shift) + dropped
    return result


@operator("left_shift")
class LeftShift(Operator):
    """x * 2^shift, 0 <= shift <= 31, a tensor that broadcasts. Gives int32."""

    input_names = ("data", "shift")

    def infer(self, x: TensorType, shift: TensorType) -> TensorType:
        return _infer_shift(x, shift)

    def evaluate(self, x: Array, shift: Array) -> Array:
        return multiply(x, np.left_shift(1, _checked_shift(shift)))

    def bounds(self, x: Interval, shift: Interval) -> Interval:
        factor = shift.map(lambda s: np.left_shift(1, _checked_shift(s)))
        return product(x, factor, _shape(x, shift))


@operator("Cast", "cast")
class Cast(Operator):
    """The same values in another dtype. Floats are truncated to integers; an integer that does not fit is an error."""

    is_elementwise = True

    dtype: str

    def infer(self, x: TensorType) -> TensorType:
        if self.dtype not in DTYPES:
            raise GraphError(f"dtype is {self.dtype}; one of {sorted(DTYPES)} is needed")
        return x.with_dtype(self.dtype)

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        if x.dtype.kind == "f" and self.dtype in INTEGER_DTYPES - {"bool"}:
            if not np.isfinite(x).all():
                raise DataError(f"Cast to {self.dtype}: the data holds NaN or infinity")
            return np.trunc(x)
        return x

    def bounds(self, x: Interval) -> Interval:
        if self.dtype in FLOAT_DTYPES:
            return x.map(lambda v: v.astype(np.float64))
        if self.dtype == "bool":
            zero, nonzero = x.min == x.max == 0, x.min > 0 or x.max < 0
            return Interval.of(int(nonzero), int(not zero), x.shape)
        if x.lo.dtype.kind != "f":
            return x
        limits = np.iinfo(self.dtype)
        return x.map(lambda v: np.trunc(np.clip(v, float(limits.min), float(limits.max))).astype(object))


@operator("quantize")
class Quantize(Operator):
    """clip(round(x / scale) + zero_point, a_min, a_max): float to integer, QuantizeLinear of ONNX.

    x and scale are float32, and so is the quotient; it is rounded half to even, or as `rounding` says (`ROUNDINGS`).
    With zero_point_first it is round(x / scale + zero_point) instead, as QONNX defines it: which integer a tie goes to,
    or on which side of it zero lies, is then a matter of what is stored. scale and zero_point, integers, broadcast to
    the data: one value, or one along an axis. a_min and a_max are the ends of the integers that are meant, such as 0
    and 65535 of uint16; they must fit dtype, which stores them.
    """

    a_min: int
    a_max: int
    dtype: str
    rounding: str = HALF_EVEN
    zero_point_first: bool = False

    input_names = ("data", "scale", "zero_point")
    is_elementwise = True
    is_trained_quantizer = True

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        require_float(x)
        require_float(scale)
        require_integer(zero_point)
        if self.dtype not in INTEGER_DTYPES - {"bool"}:
            raise GraphError(f"dtype is {self.dtype}; an integer dtype is needed")
        info = np.iinfo(self.dtype)
        if not info.min <= self.a_min <= self.a_max <= info.max:
            raise GraphError(f"[{self.a_min}, {self.a_max}] is no interval of {self.dtype}")
        if self.rounding not in ROUNDINGS:
            raise GraphError(f"rounding is {self.rounding}; one of {', '.join(ROUNDINGS)} is needed")
        return TensorType(broadcast_shape(x, scale, zero_point), self.dtype)

    @property
    def is_half_even(self) -> bool:
        """Whether it is QuantizeLinear of ONNX."""
        return self.rounding == HALF_EVEN and not self.zero_point_first

    def evaluate(self, x: Array, scale: Array, zero_point: Array) -> Array:
        with np.errstate(all="ignore"):
            steps = x.astype(np.float32) / scale.astype(np.float32)
        if np.isnan(steps).any():
            raise DataError("quantize: the data holds NaN, or the scale is 0")
        # In float64 every sum that survives the clip is exact.
        moved = rounded_steps(steps, zero_point, self.rounding, self.zero_point_first)
        return np.clip(moved, self.a_min, self.a_max).astype(np.int64)

    def bounds(self, x: Interval, scale: Interval, zero_point: Interval) -> Interval:
        return Interval.of(self.a_min, self.a_max, np.broadcast_shapes(x.shape, scale.shape, zero_point.shape))


@operator("dequantize")
class Dequantize(Operator):
    """(x - zero_point) * scale in float32: integer to float, DequantizeLinear of ONNX.

    scale and zero_point, integers, broadcast to the data: one value, or one along an axis.
    """

    input_names = ("data", "scale", "zero_point")
    is_elementwise = True
    is_trained_quantizer = True

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        require_integer(x)
        require_float(scale)
        require_integer(zero_point)
        return TensorType(broadcast_shape(x, scale, zero_point), "float32")

    def evaluate(self, x: Array, scale: Array, zero_point: Array) -> Array:
        steps = subtract(x, zero_point).astype(np.float64)
        result: Array = steps * scale.astype(np.float64)
        return result

    def bounds(self, x: Interval, scale: Interval, zero_point: Interval) -> Interval:
        shape = np.broadcast_shapes(x.shape, scale.shape, zero_point.shape)
        steps = subtracted(x, zero_point, shape).map(lambda v: v.astype(np.float64))
        return product(steps, scale, shape)
