"""A convolution whose slices of channels count by factors: what channel granularity splits, as one operator again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.operators.convolution import Convolution


@dataclass(frozen=True)
class SlicedConvolution(Convolution):
    """Y = sum over the slices g of f[g, o] Convolution(X_g, W_g), of one group and without a bias.

    Inputs: the data, the weight (O, C, *kernel), and the factors (slices, O), constants of 1 or more. Convolution is
    linear, so that Y is that of the whole data by the `folded` weight. The backend makes it from a graph's slices
    (`MergeSlices`), where its kernel is faster than that of the folded weight.

    width: input channels of a slice; the last may have fewer.
    """

    op = "sliced_convolution"
    input_names = ("data", "weight", "factors")

    width: int = 1

    def infer(self, x: TensorType, weight: TensorType, factors: TensorType | None = None) -> TensorType:
        shape = slices_of(weight.shape, self.width)
        if factors is None or factors.shape != shape:
            raise GraphError(f"factors are {factors}; shape {shape} is needed for weight {weight}")
        return self._whole.infer(x, weight)

    # A convolution's bias may be missing; factors are Any, so that the same signature says that they may not.
    def evaluate(self, x: Array, weight: Array, factors: Any = None) -> Array:
        return self._whole.evaluate(x, folded(weight, factors, self.width))

    def bounds(self, x: Interval, weight: Interval, factors: Any = None) -> Interval:
        return self._whole.bounds(x, self._folded(weight, factors))

    def intermediates(self, x: Interval, weight: Interval, factors: Any = None) -> tuple[Interval, ...]:
        return self._whole.intermediates(x, self._folded(weight, factors))

    @property
    def _whole(self) -> Convolution:
        """The convolution by the folded weight."""
        return Convolution(**{field.name: getattr(self, field.name) for field in fields(Convolution)})

    def _folded(self, weight: Interval, factors: Interval) -> Interval:
        return weight.map(lambda bound: folded(bound, factors.hi, self.width))


def slices_of(weight: tuple[int, ...], width: int) -> tuple[int, int]:
    """The shape of the factors of a weight (O, C, *kernel) in slices of `width` channels."""
    return -(-weight[1] // width), weight[0]


def folded(weight: Array, factors: Array, width: int) -> Array:
    """The weight (O, C, *kernel), each times the factor of its slice and output channel; int64."""
    each = np.repeat(factors.astype(np.int64), width, axis=0)[: weight.shape[1]].T
    result: Array = weight * each.reshape(*each.shape, *(1,) * (weight.ndim - 2))
    return result
