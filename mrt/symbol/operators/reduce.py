"""Reductions over axes: sum, mean, max."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, total
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import partial_sums, summed
from mrt.symbol.types import TensorType, arithmetic_dtype, normalize_axis


class Reduction(Operator):
    """Base of reductions: over `axis`; over all axes if none is named; with exclude over all others.

    The subclasses repeat the fields, since a dataclass declares its own.
    """

    axis: tuple[int, ...] | None
    keepdims: bool
    exclude: bool

    def axes(self, rank: int) -> tuple[int, ...]:
        """The reduced axes, counted from the front and in order."""
        if not self.axis:
            return tuple(range(rank))
        named = [normalize_axis(a, rank) for a in self.axis]
        if len(set(named)) < len(named):
            raise GraphError(f"axis is {self.axis}; each axis may stand once")
        return tuple(a for a in range(rank) if (a in named) != self.exclude)

    def reduced_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that is left of `shape`; MXNet knows no rank 0, so that a full reduction gives (1,)."""
        axes = self.axes(len(shape))
        if self.keepdims:
            return tuple(1 if a in axes else n for a, n in enumerate(shape))
        return tuple(n for a, n in enumerate(shape) if a not in axes) or (1,)

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        axes = self.axes(inputs[index].rank)
        if axis in axes:
            return None
        return axis if self.keepdims else axis - sum(a < axis for a in axes)

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def batch_obstacle(self, x: TensorType) -> str:
        axes = self.axes(x.rank)
        return f"axes {axes} with axis 0 are reduced" if 0 in axes else ""

    def _infer(self, x: TensorType) -> TensorType:
        if any(not x.shape[a] for a in self.axes(x.rank)):
            raise GraphError(f"data is {x}; there is nothing to reduce over axis {self.axis}")
        return x.with_shape(self.reduced_shape(x.shape))

    def _dropped(self, lo: Array, hi: Array, shape: tuple[int, ...]) -> Interval:
        """Bounds whose reduced axes have length 1, in the shape of the output."""
        axes = self.axes(len(shape))
        if not self.keepdims:
            lo, hi = (bound.squeeze(axes) if bound.ndim > len(axes) else bound.reshape(1) for bound in (lo, hi))
        return Interval(lo, hi, self.reduced_shape(shape))


@operator("sum", "sum_axis")
class Sum(Reduction):
    """The sum over `axis` (all axes if none is named; all others with exclude). Integers give int32."""

    family = "sum"

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    def infer(self, x: TensorType) -> TensorType:
        return self._infer(x).with_dtype(arithmetic_dtype(x))

    def evaluate(self, x: Array) -> Array:
        wide = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        return total(wide, self.axes(x.ndim)).reshape(self.reduced_shape(x.shape))

    def bounds(self, x: Interval) -> Interval:
        sums = summed(x, self.axes(len(x.shape)))
        return self._dropped(sums.lo, sums.hi, x.shape)

    def intermediates(self, x: Interval) -> tuple[Interval, ...]:
        return (self.bounds(partial_sums(x)),)


@operator("mean")
class Mean(Reduction):
    """The average over `axis` (all axes if none is named; all others with exclude). Float only."""

    family = "mean"

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    def infer(self, x: TensorType) -> TensorType:
        return self._infer(require_float(x))

    def evaluate(self, x: Array) -> Array:
        average: Array = np.asarray(x.astype(np.float64).mean(axis=self.axes(x.ndim)))
        return average.reshape(self.reduced_shape(x.shape))

    def bounds(self, x: Interval) -> Interval:
        axes = self.axes(len(x.shape))
        hull = x.reduced([a for a in range(len(x.shape)) if a not in axes])
        return self._dropped(hull.lo, hull.hi, x.shape)


class Extreme(Reduction):
    """Base of max and min. Keeps scale and dtype.

    The subclasses repeat the fields, since a dataclass declares its own.
    """

    choose: ClassVar[np.ufunc]
    """The one of two elements that is kept."""

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        return self._infer(x)

    def evaluate(self, x: Array) -> Array:
        return np.asarray(self.choose.reduce(x, axis=self.axes(x.ndim))).reshape(self.reduced_shape(x.shape))

    def bounds(self, x: Interval) -> Interval:
        axes = self.axes(len(x.shape))
        lo, hi = (self.choose.reduce(bound, axis=axes, keepdims=True) for bound in (x.lo, x.hi))
        return self._dropped(lo, hi, x.shape)


@operator("max", "max_axis")
class Max(Extreme):
    """The largest element over `axis` (all axes if none is named; all others with exclude)."""

    family = "max"

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    choose = np.maximum
