"""Convolution of one to three spatial axes, in NCHW layout."""

from __future__ import annotations

from math import prod

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import per_axis
from mrt.symbol.operators._intervals import added, output_shape, partial_sums, product, summed
from mrt.symbol.operators._products import convolve, sum_of_products
from mrt.symbol.types import TensorType, arithmetic_dtype

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


@operator("Convolution", "Convolution_v1")
class Convolution(Operator):
    """Cross-correlation of the data (N, C, *spatial) with the weight (O, C / num_group, *kernel), plus a bias (O,).

    Y[n, o, p] = sum over i, k of X[n, g C/G + i, p stride + k dilate - pad] W[o, i, k] + b[o], g the group of o;
    X is 0 outside. Integers give int32.
    """

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    num_group: int = 1
    no_bias: bool = False
    layout: str | None = None

    ignored = frozenset({"workspace", "cudnn_tune", "cudnn_off"})
    input_names = ("data", "weight", "bias")
    weight_channel_axis = 0

    def channel_axis(self) -> int:
        return 1

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        rank = len(self.kernel)
        if rank not in LAYOUTS or min(self.kernel) < 1:
            raise GraphError(f"kernel is {self.kernel}; one to three positive lengths are needed")
        if self.layout not in (None, LAYOUTS[rank]):
            raise GraphError(f"layout is {self.layout}; {LAYOUTS[rank]} is needed: transpose the data and the weight")
        if x.rank != rank + 2:
            raise GraphError(f"data is {x}; rank {rank + 2} is needed for kernel {self.kernel}")
        if self.num_group < 1 or x.shape[1] % self.num_group or self.num_filter % self.num_group:
            raise GraphError(
                f"num_group {self.num_group} does not divide {x.shape[1]} channels and num_filter {self.num_filter}"
            )
        expected = (self.num_filter, x.shape[1] // self.num_group, *self.kernel)
        if weight.shape != expected:
            raise GraphError(f"weight is {weight}; shape {expected} is needed")
        if self.no_bias != (bias is None):
            raise GraphError(f"no_bias is {self.no_bias}, but a bias is {'missing' if bias is None else 'given'}")
        if bias is not None and bias.shape != (self.num_filter,):
            raise GraphError(f"bias is {bias}; shape ({self.num_filter},) is needed")
        stride, dilate, pad = self.window(rank)
        spatial = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, d, p in zip(x.shape[2:], self.kernel, stride, dilate, pad, strict=True)
        )
        if min(spatial) < 1:
            raise GraphError(f"the window of kernel {self.kernel} and dilate {dilate} exceeds {x} with pad {pad}")
        given = (x, weight) if bias is None else (x, weight, bias)
        return TensorType((x.shape[0], self.num_filter, *spatial), arithmetic_dtype(*given))

    def window(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """stride, dilate and pad, one value per spatial axis each."""
        return (
            per_axis(self.stride, rank, 1, "stride", 1),
            per_axis(self.dilate, rank, 1, "dilate", 1),
            per_axis(self.pad, rank, 0, "pad", 0),
        )

    def data_channel_axis(self, rank: int) -> int:
        return 1

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        stride, dilate, pad = self.window(x.ndim - 2)
        if any(pad):
            x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)))
        result = sum_of_products(
            lambda data, taps: convolve(data, taps, stride, dilate, self.num_group), x, weight, prod(weight.shape[1:])
        )
        return result if bias is None else add(result, bias.reshape(-1, *(1,) * (x.ndim - 2)))

    def bounds(self, x: Interval, weight: Interval, bias: Interval | None = None) -> Interval:
        terms, offset = self._terms(x, weight, bias)
        return self._sum(terms, offset, self._output_shape(x, weight, bias))

    def intermediates(self, x: Interval, weight: Interval, bias: Interval | None = None) -> tuple[Interval, ...]:
        terms, offset = self._terms(x, weight, bias)
        offset = None if offset is None else partial_sums(offset)
        return (self._sum(partial_sums(terms), offset, self._output_shape(x, weight, bias)),)

    def _output_shape(self, x: Interval, weight: Interval, bias: Interval | None) -> tuple[int, ...]:
        return output_shape(self, x, weight) if bias is None else output_shape(self, x, weight, bias)

    def _terms(self, x: Interval, weight: Interval, bias: Interval | None) -> tuple[Interval, Interval | None]:
        """The products of one output element, (O, C / num_group, *kernel), and the bias, (O,)."""
        if any(self.pad):
            x = x.including(0)
        x = x.reduced([1])
        outputs, channels = weight.shape[0], x.shape[1]

        def for_each_output(bound: Array) -> Array:
            """(1, C, ...) to (O, C / num_group, 1, ...): what the output channel's group reads."""
            groups = np.broadcast_to(bound.reshape(-1), (channels,)).reshape(self.num_group, -1)
            repeated = np.repeat(groups, outputs // self.num_group, axis=0)
            return repeated.reshape(*repeated.shape, *(1,) * len(self.kernel))

        seen = Interval(for_each_output(x.lo), for_each_output(x.hi), weight.shape)
        return product(seen, weight, weight.shape), bias

    @staticmethod
    def _sum(terms: Interval, bias: Interval | None, shape: tuple[int, ...]) -> Interval:
        result = summed(terms, tuple(range(1, len(terms.shape))))
        trailing = (1,) * (len(shape) - 2)
        flat = Interval(result.lo.reshape(-1), result.hi.reshape(-1), (shape[1],))
        flat = flat if bias is None else added(flat, bias, flat.shape)
        return Interval.of(flat.lo.reshape(-1, *trailing), flat.hi.reshape(-1, *trailing), shape)
