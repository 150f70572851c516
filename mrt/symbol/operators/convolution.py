"""Convolution of one to three spatial axes, in NCHW layout."""

from __future__ import annotations

from math import prod

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add
from mrt.symbol.operator import operator
from mrt.symbol.operators._checks import per_axis
from mrt.symbol.operators._intervals import added, output_shape, partial_sums, weighted
from mrt.symbol.operators._products import convolve, sum_of_products, windows
from mrt.symbol.operators._windowed import WindowedLayer
from mrt.symbol.types import TensorType


@operator("Convolution", "Convolution_v1")
class Convolution(WindowedLayer):
    """Cross-correlation of the data (N, C, *spatial) with the weight (O, C / num_group, *kernel), plus a bias (O,).

    Y[n, o, p] = sum over i, k of X[n, g C/G + i, p stride + k dilate - pad] W[o, i, k] + b[o], g the group of o;
    X is 0 outside. Integers give int32.
    """

    family = "convolution"

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    num_group: int = 1
    no_bias: bool = False
    layout: str | None = None

    weight_channel_axis = 0

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        dtype = self._checked(x, weight, bias)
        stride, dilate, pad = self.window(len(self.kernel))
        spatial = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, d, p in zip(x.shape[2:], self.kernel, stride, dilate, pad, strict=True)
        )
        if min(spatial) < 1:
            raise GraphError(f"the window of kernel {self.kernel} and dilate {dilate} exceeds {x} with pad {pad}")
        return TensorType((x.shape[0], self.num_filter, *spatial), dtype)

    def working_size(self, x: TensorType, *weights: TensorType) -> int:
        """The data with its padding."""
        _, _, pad = self.window(len(self.kernel))
        return prod(x.shape[:2]) * prod(n + 2 * p for n, p in zip(x.shape[2:], pad, strict=True))

    def window(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """stride, dilate and pad, one value per spatial axis each."""
        return (
            per_axis(self.stride, rank, 1, "stride", 1),
            per_axis(self.dilate, rank, 1, "dilate", 1),
            per_axis(self.pad, rank, 0, "pad", 0),
        )

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        stride, dilate, pad = self.window(x.ndim - 2)
        x = _padded(x, pad)
        result = sum_of_products(
            lambda data, taps: convolve(data, taps, stride, dilate, self.num_group), x, weight, prod(weight.shape[1:])
        )
        return result if bias is None else add(result, bias.reshape(-1, *(1,) * (x.ndim - 2)))

    def patches(self, x: Array, positions: Array) -> Array:
        stride, dilate, pad = self.window(x.ndim - 2)
        view = np.moveaxis(windows(_padded(x, pad), self.kernel, stride, dilate), 1, x.ndim - 1)
        found = view[np.unravel_index(positions, view.shape[: x.ndim - 1])]
        terms = prod(view.shape[x.ndim - 1 :]) // self.num_group
        return found.reshape(len(positions), self.num_group, terms).transpose(1, 0, 2)

    def bounds(self, x: Interval, weight: Interval, bias: Interval | None = None) -> Interval:
        seen = (x.including(0) if any(self.pad) else x).reduced([1])
        flat = weighted(seen, weight, self.num_group)
        flat = flat if bias is None else added(flat, bias, flat.shape)
        shape = output_shape(self, x, weight) if bias is None else output_shape(self, x, weight, bias)
        trailing = (1,) * (len(shape) - 2)
        return Interval.of(flat.lo.reshape(-1, *trailing), flat.hi.reshape(-1, *trailing), shape)

    def intermediates(self, x: Interval, weight: Interval, bias: Interval | None = None) -> tuple[Interval, ...]:
        return (self.bounds(partial_sums(x), weight, None if bias is None else partial_sums(bias)),)


def _padded(x: Array, pad: tuple[int, ...]) -> Array:
    return np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad))) if any(pad) else x
