"""Intervals [lo, hi] that tensors are proven to stay in, with exact integer arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mrt.symbol.types import INT32_MAX, INT32_MIN, narrowest_dtype

Array = np.ndarray[Any, np.dtype[Any]]

_SAFE = 2**62
SMALL = 2**10
"""Bounds of so many elements take no memory that counts."""


@dataclass(frozen=True, eq=False)
class Interval:
    """lo <= x <= hi for a tensor x of the given shape.

    lo and hi have the tensor's rank, and along each axis either its length or 1, so that a bound per channel or per
    element is one array that broadcasts. Integers are int64 where that cannot overflow, else Python ints in an
    object array; floats are float64 (used for signs only, never for a proof).
    """

    lo: Array
    hi: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, lo: Any, hi: Any, shape: Sequence[int]) -> Interval:
        """The same scalar bounds, or bounds that broadcast, for a tensor of `shape`."""
        rank = len(shape)
        return cls(_ranked(lo, rank), _ranked(hi, rank), tuple(shape))

    @classmethod
    def constant(cls, value: Array) -> Interval:
        """lo = hi = value."""
        return _Constant(np.asarray(value))

    @property
    def known(self) -> Array | None:
        """The tensor as it is stored, smaller than its exact bounds; None where it is not a constant."""
        return None

    @cached_property
    def min(self) -> Any:
        """The lowest bound, a Python int (or float)."""
        return self.lo.min().item() if self.lo.dtype != object else self.lo.min()

    @cached_property
    def max(self) -> Any:
        """The highest bound."""
        return self.hi.max().item() if self.hi.dtype != object else self.hi.max()

    @property
    def is_constant(self) -> bool:
        """Whether lo equals hi everywhere, so that the tensor's value is known."""
        return self.lo is self.hi or bool(np.array_equal(self.lo, self.hi))

    @property
    def is_one(self) -> bool:
        """Whether every element has the same finite bounds."""
        lo, hi = self.lo, self.hi
        same = lo.size == hi.size == 1 or bool(lo.size and (lo == self.min).all() and (hi == self.max).all())
        return same and (lo.dtype.kind != "f" or bool(np.isfinite([self.min, self.max]).all()))

    @property
    def signed_sums(self) -> tuple[Array, Array]:
        """The exact sums of the positive and of the negative elements at each index of axis 0; for constants only."""
        raise TypeError("no sums are known of a tensor that is not constant")

    @property
    def magnitude(self) -> Any:
        """The largest absolute value, a Python int (or float)."""
        return max(abs(self.min), abs(self.max))

    @property
    def bits(self) -> int:
        """The two's-complement width of the interval: [-128, 127] is 8, [0, 255] is 9."""
        return max(signed_bits(int(self.min)), signed_bits(int(self.max)))

    @property
    def fits_int32(self) -> bool:
        return bool(self.min >= INT32_MIN and self.max <= INT32_MAX)

    def map(self, function: Callable[[Array], Array]) -> Interval:
        """The image under a non-decreasing elementwise function."""
        return Interval(function(self.lo), function(self.hi), self.shape)

    def reshaped(self, shape: Sequence[int]) -> Interval:
        """The extremes as scalar bounds for another shape."""
        return Interval.of(self.min, self.max, shape)

    def expanded(self) -> Interval:
        """lo and hi as full arrays of the tensor's shape (views, not copies)."""
        return Interval(np.broadcast_to(self.lo, self.shape), np.broadcast_to(self.hi, self.shape), self.shape)

    def compact(self) -> Interval:
        """The same bounds, of length 1 along every axis where neither end varies; small ones as they are."""
        if self.known is not None or max(self.lo.size, self.hi.size) <= SMALL:
            return self
        lo, hi = self.lo, self.hi
        for axis in range(lo.ndim if lo.shape == hi.shape else 0):
            first_lo, first_hi = lo.take([0], axis), hi.take([0], axis)
            if lo.shape[axis] > 1 and (lo == first_lo).all() and (hi == first_hi).all():
                lo, hi = first_lo, first_hi
        return Interval(lo, hi, self.shape)

    def reduced(self, keep: Sequence[int]) -> Interval:
        """The hull over every axis that is not in `keep`; the rank stays."""
        axes = tuple(a for a in range(self.lo.ndim) if a not in keep)
        return Interval(self.lo.min(axis=axes, keepdims=True), self.hi.max(axis=axes, keepdims=True), self.shape)

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both; the shape is this one's."""
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi), self.shape)

    def including(self, value: int) -> Interval:
        """The interval widened to hold one value."""
        return Interval(np.minimum(self.lo, value), np.maximum(self.hi, value), self.shape)

    def __str__(self) -> str:
        return f"[{self.min}, {self.max}]"


class _Constant(Interval):
    """The interval of a tensor that is known. Its bounds are made when they are asked for: most are only searched."""

    def __init__(self, value: Array) -> None:
        vars(self).update(stored=value, shape=tuple(value.shape))

    @cached_property
    def lo(self) -> Array:
        return exact_array(self.known)

    @property
    def hi(self) -> Array:
        return self.lo

    @property
    def known(self) -> Array:
        stored: Array = vars(self)["stored"]
        return stored

    @cached_property
    def min(self) -> Any:
        return exact_array(self.known.min()).item()

    @cached_property
    def max(self) -> Any:
        return exact_array(self.known.max()).item()

    @property
    def is_constant(self) -> bool:
        return True

    def reduced(self, keep: Sequence[int]) -> Interval:
        axes = tuple(a for a in range(self.known.ndim) if a not in keep)
        lo, hi = (exact_array(end(axis=axes, keepdims=True)) for end in (self.known.min, self.known.max))
        return Interval(lo, hi, self.shape)

    @cached_property
    def signed_sums(self) -> tuple[Array, Array]:
        rows = narrowed(self.known).reshape(len(self.known), -1)
        if rows.dtype.kind not in "iu":
            return total(np.maximum(rows, 0), 1), total(np.minimum(rows, 0), 1)
        everything, absolute = total(rows, 1), total(magnitudes(rows), 1)
        return (everything + absolute) >> 1, (everything - absolute) >> 1


def signed_bits(value: int) -> int:
    """Two's-complement width that holds `value`: 1 for 0 and -1, 8 for 127 and -128."""
    return (value if value >= 0 else ~value).bit_length() + 1


def exact_array(value: Any) -> Array:
    """Integers as int64 (object where already so), floats as float64."""
    array = np.asarray(value)
    if array.dtype == object:
        return array
    if array.dtype == np.uint64:  # such as NumPy takes a Python int of 2^63 for
        return array.astype(object)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)


def narrowed(value: Array) -> Array:
    """The integers in fewer bytes, which are faster to read; floats and narrow integers as they are."""
    if value.dtype.kind not in "iu" or value.itemsize <= 2 or not value.size:
        return value
    lo, hi = int(value.min()), int(value.max())
    return value if lo < INT32_MIN or hi > INT32_MAX else value.astype(narrowest_dtype(lo, hi))


def magnitudes(a: Array) -> Array:
    """|a|; integers as unsigned ones of their width, in which the least of them has room."""
    absolute: Array = np.abs(a)
    return absolute.view(f"u{absolute.dtype}") if a.dtype.kind == "i" else absolute


def add(a: Array, b: Array) -> Array:
    """a + b without overflow."""
    a, b = _roomy(a, b, lambda x, y: x + y)
    return _whole(a + b)


def subtract(a: Array, b: Array) -> Array:
    """a - b without overflow."""
    a, b = _roomy(a, b, lambda x, y: x + y)
    return _whole(a - b)


def multiply(a: Array, b: Array) -> Array:
    """a * b, elementwise, without overflow."""
    a, b = _roomy(a, b, lambda x, y: x * y)
    return _whole(a * b)


def total(a: Array, axis: tuple[int, ...] | int | None, times: int = 1, keepdims: bool = False) -> Array:
    """times * (sum of a over axis) without overflow."""
    axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    terms = times * int(np.prod([a.shape[i] for i in axes], dtype=np.int64))
    dtype: Any = None
    if a.dtype != object and a.dtype.kind != "f":
        most = _largest(a) * terms
        a = a.astype(object) if most >= _SAFE else a
        # Twice as many are added at once in half the bits.
        dtype = object if most >= _SAFE else np.int64 if most > INT32_MAX else np.int32
    kept: Any = keepdims  # NumPy 2.5 is annotated for literals only.
    result = _whole(a.sum(axis=axis, dtype=dtype, keepdims=kept))
    return _whole(np.asarray(exact_array(result) * times))


def _ranked(value: Any, rank: int) -> Array:
    array = exact_array(value)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _whole(value: Any) -> Array:
    """The value as an array: NumPy's operators make a Python int of two object arrays of rank 0."""
    return np.asarray(value, object) if isinstance(value, int) else value


def _largest(a: Array) -> int:
    return max(abs(int(a.min())), abs(int(a.max()))) if a.size else 0


def _roomy(a: Array, b: Array, combine: Callable[[int, int], int]) -> tuple[Array, Array]:
    a, b = exact_array(a), exact_array(b)
    if a.dtype.kind == "f" or b.dtype.kind == "f" or a.dtype == object or b.dtype == object:
        return a, b
    if combine(_largest(a), _largest(b)) >= _SAFE:
        return a.astype(object), b.astype(object)
    return a, b
