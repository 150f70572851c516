"""Deconvolution, elsewhere called transposed convolution, of one to three spatial axes, in NCHW layout."""

from __future__ import annotations

from math import prod

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add
from mrt.symbol.operator import operator
from mrt.symbol.operators._checks import per_axis
from mrt.symbol.operators._intervals import added, output_shape, partial_sums, product
from mrt.symbol.operators._products import convolve, sum_of_products
from mrt.symbol.operators._windowed import WindowedLayer
from mrt.symbol.types import TensorType


@operator("Deconvolution")
class Deconvolution(WindowedLayer):
    """Every element of the data (N, C, *spatial) times the weight (C, O / num_group, *kernel), laid into the output.

    Y[n, o, p] = sum over i, k, q with q stride + k dilate - pad = p of X[n, g C/G + i, q] W[g C/G + i, o mod O/G, k],
    plus b[o], g the group of o. The output has (n - 1) stride + (kernel - 1) dilate + 1 - 2 pad + adj positions along
    an axis; how many taps reach one varies with its phase and near the border. Integers give int32.

    target_shape: the output's positions instead, where it holds other numbers than 0; pad and adj follow from it.
    """

    family = "deconvolution"

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    adj: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()
    num_group: int = 1
    no_bias: bool = True
    layout: str | None = None

    weight_channel_axis = 1

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        dtype = self._checked(x, weight, bias)
        spatial = self.output_spatial(x.shape[2:])
        if min(x.shape[2:]) < 1 or min(spatial) < 1:
            raise GraphError(f"the output of {x} would have the positions {spatial}; lower pad, which is {self.pad}")
        return TensorType((x.shape[0], self.num_filter, *spatial), dtype)

    def working_size(self, x: TensorType, *weights: TensorType) -> int:
        """The data with zeros between its elements and a border of the kernel's reach."""
        stride, dilate = self.window(len(self.kernel))
        lengths = zip(x.shape[2:], self.kernel, stride, dilate, strict=True)
        return prod(x.shape[:2]) * prod((n - 1) * s + 1 + 2 * (k - 1) * d for n, k, s, d in lengths)

    def window(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """stride and dilate, one value per spatial axis each."""
        return per_axis(self.stride, rank, 1, "stride", 1), per_axis(self.dilate, rank, 1, "dilate", 1)

    def border(self, spatial: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """pad and adj, one value per spatial axis each, for data of these lengths."""
        rank = len(spatial)
        pad, adj = per_axis(self.pad, rank, 0, "pad", 0), per_axis(self.adj, rank, 0, "adj", 0)
        if not any(self.target_shape):
            return pad, adj
        target = per_axis(self.target_shape, rank, 0, "target_shape", 1)
        excess = [whole - n for whole, n in zip(self._whole(spatial), target, strict=True)]
        if min(excess) < 0:
            raise GraphError(f"target_shape is {target}; at most {self._whole(spatial)} is needed")
        return tuple((n + 1) // 2 for n in excess), tuple(n % 2 for n in excess)

    def output_spatial(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """The output's lengths for data of these."""
        pad, adj = self.border(spatial)
        return tuple(n - 2 * p + a for n, p, a in zip(self._whole(spatial), pad, adj, strict=True))

    def _whole(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """The output's lengths along each axis before pad cuts them."""
        stride, dilate = self.window(len(spatial))
        return tuple(
            (n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(spatial, self.kernel, stride, dilate, strict=True)
        )

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        def compute(data: Array, taps: Array) -> Array:
            return self._spread(data, taps)

        result = sum_of_products(compute, x, weight, prod(weight.shape[2:]) * (weight.shape[0] // self.num_group))
        return result if bias is None else add(result, bias.reshape(-1, *(1,) * (x.ndim - 2)))

    def _spread(self, x: Array, weight: Array) -> Array:
        """A convolution, with the weight turned round, of the data with stride - 1 zeros between its elements."""
        spatial = x.shape[2:]
        stride, dilate = self.window(len(spatial))
        pad, adj = self.border(spatial)
        reach = [d * (k - 1) for k, d in zip(self.kernel, dilate, strict=True)]
        before = [r - p for r, p in zip(reach, pad, strict=True)]
        after = [r - p + a for r, p, a in zip(reach, pad, adj, strict=True)]
        spans = [(n - 1) * s + 1 for n, s in zip(spatial, stride, strict=True)]
        lengths = [max(b, 0) + n + max(a, 0) for b, n, a in zip(before, spans, after, strict=True)]
        apart = np.zeros((*x.shape[:2], *lengths), x.dtype)
        places = [slice(max(b, 0), max(b, 0) + n, s) for b, n, s in zip(before, spans, stride, strict=True)]
        cuts = [slice(max(-b, 0), min(a, 0) or None) for b, a in zip(before, after, strict=True)]
        written, kept = (slice(None), slice(None), *places), (slice(None), slice(None), *cuts)
        apart[written] = x
        data, turned = apart[kept], np.flip(weight, tuple(range(2, weight.ndim)))
        return convolve(data, self.rows(turned), (1,) * len(spatial), dilate, self.num_group)

    def rows(self, weight: Array) -> Array:
        """A weight (C, O / num_group, *kernel) as a convolution has it: (O, C / num_group, *kernel)."""
        (inputs, outputs), groups = weight.shape[:2], self.num_group
        split = weight.reshape(groups, inputs // groups, outputs, *weight.shape[2:])
        return split.swapaxes(1, 2).reshape(groups * outputs, inputs // groups, *weight.shape[2:])

    def from_rows(self, rows: Array) -> Array:
        """The inverse of `rows`: (O, C / num_group, *kernel) to (C, O / num_group, *kernel)."""
        (outputs, inputs), groups = rows.shape[:2], self.num_group
        split = rows.reshape(groups, outputs // groups, inputs, *rows.shape[2:])
        return split.swapaxes(1, 2).reshape(groups * inputs, outputs // groups, *rows.shape[2:])

    def bounds(self, x: Interval, weight: Interval, bias: Interval | None = None) -> Interval:
        return self._sum(self._terms(x, weight), bias, x.shape, weight.shape)

    def intermediates(self, x: Interval, weight: Interval, bias: Interval | None = None) -> tuple[Interval, ...]:
        offset = None if bias is None else partial_sums(bias)
        return (self._sum(partial_sums(self._terms(x, weight)), offset, x.shape, weight.shape),)

    def _terms(self, x: Interval, weight: Interval) -> Interval:
        """The product of a data element and a tap, for every element of the weight."""
        x = x.reduced([1])
        shape = (-1, *(1,) * (len(weight.shape) - 1))
        seen = Interval(x.lo.reshape(shape), x.hi.reshape(shape), weight.shape)
        return product(seen, weight, weight.shape)

    def _sum(self, terms: Interval, bias: Interval | None, data: tuple[int, ...], weight: tuple[int, ...]) -> Interval:
        """One interval for each output channel: the hull over all positions of the sums of the taps that reach them.

        Which taps do is seen on a smaller image, just large enough to show each border alone.
        """
        shape = output_shape(self, Interval.of(0, 0, data), Interval.of(0, 0, weight), *_of_bias(bias))
        pad, adj = self.border(data[2:])
        stride, dilate = self.window(len(self.kernel))
        if terms.lo.dtype.kind == "f":
            axes = tuple(range(len(weight)))
            lo, hi = np.minimum(terms.lo, 0), np.maximum(terms.hi, 0)
            lo, hi = (np.broadcast_to(v, weight).sum(axis=axes, keepdims=True) for v in (lo, hi))
        else:
            reach = [2 * ((k - 1) * d // s + 1) + 1 for k, d, s in zip(self.kernel, dilate, stride, strict=True)]
            # What pad cuts off the image may reach farther than its borders.
            reach = [n + 2 * -(-p // s) for n, p, s in zip(reach, pad, stride, strict=True)]
            small = tuple(min(n, r) for n, r in zip(data[2:], reach, strict=True))
            spread = Deconvolution(
                kernel=self.kernel,
                num_filter=self.num_filter,
                stride=self.stride,
                dilate=self.dilate,
                pad=pad,
                adj=adj,
                num_group=self.num_group,
            )
            ones = np.ones((1, data[1], *small), np.int64)
            lo, hi = (spread.evaluate(ones, np.broadcast_to(v, weight)) for v in (terms.lo, terms.hi))
            axes = tuple(range(2, len(shape)))
            lo, hi = lo.min(axis=axes, keepdims=True), hi.max(axis=axes, keepdims=True)
        total = Interval(lo, hi, shape)
        if bias is None:
            return total
        place = (1, -1, *(1,) * (len(shape) - 2))
        offset = Interval(bias.lo.reshape(place), bias.hi.reshape(place), (1, *shape[1:2], *(1,) * (len(shape) - 2)))
        return added(total, offset, shape)


def _of_bias(bias: Interval | None) -> tuple[Interval, ...]:
    return () if bias is None else (Interval.of(0, 0, bias.shape),)
