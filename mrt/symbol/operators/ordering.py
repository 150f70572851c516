"""The largest or smallest elements along an axis in their order, and their places."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.types import TensorType, normalize_axis


@operator("topk")
class TopK(Operator):
    """The first k elements along `axis`, the largest first, or their places (`ret_typ` value or indices).

    Of equal elements the one of the lower place comes first. With is_ascend the smallest come first; k 0 takes all,
    which sorts. Places are int32 of integers, else floats.
    """

    axis: int = -1
    k: int = 1
    ret_typ: str = "indices"
    is_ascend: bool = False

    compares_elements = True

    @property
    def gives_values(self) -> bool:
        return self.ret_typ == "value"

    def infer(self, x: TensorType) -> TensorType:
        if self.ret_typ not in ("value", "indices"):
            raise GraphError(f"ret_typ is {self.ret_typ!r}; value or indices is needed")
        axis = normalize_axis(self.axis, x.rank)
        if not 0 <= self.k <= x.shape[axis]:
            raise GraphError(f"k is {self.k}; data is {x}, of which 1 to {x.shape[axis]} can be taken")
        dtype = x.dtype if self.gives_values else "int32" if x.is_integer else x.dtype
        return TensorType((*x.shape[:axis], self.count(x.shape), *x.shape[axis + 1 :]), dtype)

    def count(self, shape: tuple[int, ...]) -> int:
        """How many are taken."""
        return self.k or shape[normalize_axis(self.axis, len(shape))]

    def evaluate(self, x: Array) -> Array:
        # A stable sort of the reversed data has the lower places last of equal ones, as the reversed result needs.
        axis = normalize_axis(self.axis, x.ndim)
        places: Array
        if self.is_ascend:
            places = np.argsort(x, axis=axis, kind="stable")
        else:
            last = x.shape[axis] - 1
            places = last - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        places = places.take(np.arange(self.count(x.shape)), axis=axis)
        if self.gives_values:
            return np.asarray(np.take_along_axis(x, places, axis))
        return places.astype("int32" if x.dtype.kind in "iub" else x.dtype)

    def bounds(self, x: Interval) -> Interval:
        """What is taken is within the hull along the axis; a place is one of the axis."""
        axis = normalize_axis(self.axis, len(x.shape))
        shape = (*x.shape[:axis], self.count(x.shape), *x.shape[axis + 1 :])
        if not self.gives_values:
            one: Array = np.ones((), x.lo.dtype)
            return Interval.of(0 * one, (x.shape[axis] - 1) * one, shape)
        return Interval.of(x.lo.min(axis=axis, keepdims=True), x.hi.max(axis=axis, keepdims=True), shape)

    def batch_obstacle(self, x: TensorType) -> str:
        return "elements of axis 0 are ordered" if normalize_axis(self.axis, x.rank) == 0 else ""
