"""A fully connected layer whose weights have a scale for each group of inputs, as one operator again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.operators.linear import FullyConnected


@dataclass(frozen=True)
class SlicedFullyConnected(FullyConnected):
    """Y = sum over the slices g of right_shift(f[g, o] FullyConnected(X_g, W_g), shift), in this order, without a bias.

    Inputs: the data (..., K), the weight (O, K), and the factors (slices, O), constants. The backend makes it from a
    graph's slices (`MergeRowSlices`), whose sums, products and shifts it computes one by one: so they are those that
    the graph is proven to hold.

    width: inputs of a slice, of which K is a multiple. shift: 0 for none.
    """

    op = "sliced_fully_connected"
    input_names = ("data", "weight", "factors")

    width: int = 1
    shift: int = 0

    def infer(self, x: TensorType, weight: TensorType, factors: TensorType | None = None) -> TensorType:
        shape = (weight.shape[1] // self.width, weight.shape[0])
        if weight.shape[1] % self.width or factors is None or factors.shape != shape:
            raise GraphError(f"factors are {factors}; shape {shape} is needed for weight {weight} of whole slices")
        return self._whole.infer(x, weight)

    # A layer's bias may be missing; factors are Any, so that the same signature says that they may not.
    def evaluate(self, x: Array, weight: Array, factors: Any = None) -> Array:
        rows = x.reshape(*x.shape[:-1], -1, self.width).astype(np.int64)
        sums = np.einsum("...gk,ogk->...go", rows, weight.reshape(len(weight), -1, self.width).astype(np.int64))
        shifted = RightShift().evaluate(sums * factors.astype(np.int64), np.array(self.shift))
        return np.asarray(shifted.astype(np.int64).sum(axis=-2).astype(np.int32))

    def bounds(self, x: Interval, weight: Interval, factors: Any = None) -> Interval:
        shape = (*x.shape[:-1], self.num_hidden)
        largest = max(abs(int(x.lo.min())), abs(int(x.hi.max())))
        magnitude = np.abs(weight.lo.astype(np.int64)).reshape(self.num_hidden, -1, self.width).sum(axis=2).T
        reach = magnitude * np.abs(factors.lo.astype(np.int64)) * largest
        most = ((reach >> self.shift) + 1).sum(axis=0)
        return Interval.of(-most, most, shape)

    def intermediates(self, x: Interval, weight: Interval, factors: Any = None) -> tuple[Interval, ...]:
        return (self.bounds(x, weight, factors),)

    @property
    def _whole(self) -> FullyConnected:
        return FullyConnected(num_hidden=self.num_hidden, no_bias=True, flatten=self.flatten)
