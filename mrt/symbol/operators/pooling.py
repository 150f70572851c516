"""Pooling: the largest, the sum or the average of the elements in windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, multiply
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import per_axis, require_float
from mrt.symbol.operators._intervals import output_shape, partial_sums
from mrt.symbol.operators._products import summable
from mrt.symbol.types import TensorType, arithmetic_dtype

_MAX_LENGTH = 2**20
"""How long an axis may be with its padding, since its windows are listed one by one."""
_MAX_WINDOWS = 2**31 - 1
"""How many windows there may be over all axes, before those of any are listed."""


@operator("Pooling", "Pooling_v1")
class Pooling(Operator):
    """Maximum, sum or average over windows of the data (N, C, *spatial).

    pad: one value per spatial axis for both sides or, an extension of MXNet, the values before the axes and then those
    after. pooling_convention: "valid" leaves a last partial window out, "full" keeps it. Padding adds nothing to a sum
    and is never a maximum. An average divides by the elements of the window and, with count_include_pad, by its
    padding too, but not by what lies beyond the padding. global_pool: one window over everything, no padding.
    Integers: max keeps the dtype, sum gives int32, avg has no integer form.
    """

    family = "pooling"

    kernel: tuple[int, ...] = ()
    pool_type: str = "max"
    stride: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    global_pool: bool = False
    pooling_convention: str = "valid"
    count_include_pad: bool = True

    ignored = frozenset({"cudnn_off", "p_value", "layout"})

    @property
    def keeps_scale(self) -> bool:
        return self.pool_type == "max"

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis if axis < 2 else None

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def infer(self, x: TensorType) -> TensorType:
        if self.pool_type not in ("max", "avg", "sum"):
            raise GraphError(f"pool_type is {self.pool_type}; max, avg or sum is needed")
        if self.pooling_convention not in ("valid", "full"):
            raise GraphError(f"pooling_convention is {self.pooling_convention}; valid or full is needed")
        if x.rank < 3:
            raise GraphError(f"data is {x}; rank 3 or more is needed")
        if self.pool_type == "avg":
            require_float(x)
        windows = self.windows(x.shape[2:])
        for axis, window in enumerate(windows, start=2):
            if not window:
                raise GraphError(f"kernel {self.kernel} exceeds axis {axis} of {x} with pad {self.pad}")
            if min(stop - start for start, stop, _ in window) < 1:
                raise GraphError(
                    f"a window along axis {axis} of {x} holds padding only; use a smaller pad or the valid convention"
                )
        dtype = arithmetic_dtype(x) if self.pool_type == "sum" else x.dtype
        return TensorType((*x.shape[:2], *map(len, windows)), dtype)

    def windows(self, spatial: Sequence[int]) -> list[list[tuple[int, int, int]]]:
        """For each spatial axis its windows: first element, end of the elements, and length with padding.

        The last is what an average that counts padding divides by.
        """
        rank = len(spatial)
        if self.global_pool:
            return [[(0, n, n)] for n in spatial]
        if not self.kernel:
            raise GraphError("kernel is missing; it is needed unless global_pool is True")
        kernel = per_axis(self.kernel, rank, 1, "kernel", 1)
        stride = per_axis(self.stride, rank, 1, "stride", 1)
        before, after = self.pads(rank)
        if max(n + a + b for n, a, b in zip(spatial, before, after, strict=True)) > _MAX_LENGTH:
            raise GraphError(f"axes {tuple(spatial)} with pad {self.pad}; a length of at most {_MAX_LENGTH} is needed")
        rounds_up = self.pooling_convention == "full"
        axes = list(zip(spatial, kernel, stride, before, after, strict=True))
        counts = [_count(n + a + b - k, s, rounds_up) for n, k, s, a, b in axes]
        if prod(counts) > _MAX_WINDOWS:
            raise GraphError(
                f"kernel {self.kernel} with pad {self.pad} gives {counts} windows of axes {tuple(spatial)}"
            )
        return [
            [
                (max(start, 0), min(start + k, n), min(start + k, n + b) - start)
                for start in range(-a, -a + s * count, s)
            ]
            for (n, k, s, a, b), count in zip(axes, counts, strict=True)
        ]

    def pads(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The padding before and after each of `rank` spatial axes."""
        if len(self.pad) == 2 * rank:
            both = per_axis(self.pad, 2 * rank, 0, "pad", 0)
            return both[:rank], both[rank:]
        same = per_axis(self.pad, rank, 0, "pad", 0)
        return same, same

    def is_identity(self, *inputs: TensorType) -> bool:
        window_is_one = set(self.kernel) <= {1} and set(self.stride) <= {1} and not any(self.pad)
        return self.global_pool or window_is_one

    def evaluate(self, x: Array) -> Array:
        windows = self.windows(x.shape[2:])
        result = x if self.pool_type == "max" else summable(x, prod(x.shape[2:]))
        for axis, window in enumerate(windows, start=2):
            # Windows are products of intervals, so that one axis at a time is the same and much less work.
            result = _pool_axis(result, axis, window, self.pool_type == "max")
        if self.pool_type == "avg":
            result = result / self._divisors(windows)
        return result

    def _divisors(self, windows: list[list[tuple[int, int, int]]]) -> Array:
        """What the average of each window divides by, of the output's spatial shape."""
        result: Array = np.ones(())
        for window in windows:
            counts = [full if self.count_include_pad else stop - start for start, stop, full in window]
            result = result[..., None] * np.asarray(counts, np.float64)
        return result

    def bounds(self, x: Interval) -> Interval:
        shape = output_shape(self, x)
        pooled = x.reduced([0, 1])
        if self.pool_type == "max":
            return Interval(pooled.lo, pooled.hi, shape)
        windows = self.windows(x.shape[2:])
        if self.pool_type == "avg":
            partial = any(full > stop - start for window in windows for start, stop, full in window)
            pooled = pooled.including(0) if partial and self.count_include_pad else pooled
            return Interval(pooled.lo, pooled.hi, shape)
        counts = [[stop - start for start, stop, _ in window] for window in windows]
        fewest = np.asarray(prod(min(count) for count in counts))
        most = np.asarray(prod(max(count) for count in counts))
        lo = np.minimum(multiply(pooled.lo, fewest), multiply(pooled.lo, most))
        hi = np.maximum(multiply(pooled.hi, fewest), multiply(pooled.hi, most))
        return Interval(lo, hi, shape)

    def intermediates(self, x: Interval) -> tuple[Interval, ...]:
        return (self.bounds(partial_sums(x)),) if self.pool_type == "sum" else ()


def _count(free: int, stride: int, rounds_up: bool) -> int:
    """How many windows fit where the first one leaves `free` elements; none if there are fewer than 0."""
    if free < 0:
        return 0
    return (-(-free // stride) if rounds_up else free // stride) + 1


def _pool_axis(x: Array, axis: int, window: list[tuple[int, int, int]], largest: bool) -> Array:
    """The maximum or the sum over each window of one axis."""
    starts = np.array([start for start, _, _ in window])
    lengths = np.array([stop - start for start, stop, _ in window])
    if len(window) == 1:
        only = np.take(x, range(starts[0], starts[0] + lengths[0]), axis=axis)
        return np.asarray(only.max(axis, keepdims=True) if largest else only.sum(axis, keepdims=True))
    result = np.take(x, starts, axis=axis)
    for tap in range(1, int(lengths.max())):
        inside = np.flatnonzero(lengths > tap)
        at: tuple[Any, ...] = (*(slice(None),) * axis, inside)
        taken = np.take(x, starts[inside] + tap, axis=axis)
        result[at] = np.maximum(result[at], taken) if largest else result[at] + taken
    return result
