"""What formats lack, made of operators that every format has: arrangement, tap-by-tap windows, digit-by-digit roots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Generic, TypeVar

from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.pooling import Pooling

Value = TypeVar("Value")


class Arrangement(ABC, Generic[Value]):
    """How a format moves elements. Values are of the format's own type; shapes are given where they are needed."""

    @abstractmethod
    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """`value`, whose elements keep their order, in another shape."""

    @abstractmethod
    def transposed(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with output axis i being its axis axes[i]."""

    @abstractmethod
    def sliced(self, value: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
        """value[slices] by Python's rules, for a value of `shape`."""

    @abstractmethod
    def padded(self, value: Value, before: Sequence[int], after: Sequence[int], fill: int) -> Value:
        """`value` with so many elements `fill` before and after each axis."""


class Roots(ABC, Generic[Value]):
    """How a format computes with integers of one dtype, for `integer_root`."""

    @abstractmethod
    def plus(self, value: Value, other: Value | int) -> Value: ...

    @abstractmethod
    def minus(self, value: Value, other: Value) -> Value: ...

    @abstractmethod
    def times(self, value: Value, factor: Value | int) -> Value: ...

    @abstractmethod
    def quotient(self, value: Value, divisor: Value) -> Value:
        """floor(value / divisor) for integers from 0 on and a divisor from 1 on."""

    @abstractmethod
    def chosen(self, large: Value, small: Value, chosen: Value, otherwise: Value) -> Value:
        """`chosen` where large >= small, else `otherwise`; large and small are integers from 0 on."""


def integer_root(arithmetic: Roots[Value], zero: Value, x: Value, most: int) -> Value:
    """floor(sqrt(x)) of integers 0 <= x <= most, one binary digit after the other from the highest on.

    The digit 2^i belongs to the root r where c = r + 2^i has c^2 <= x, which is c <= x div c and needs no square.
    """
    root = zero
    for place in reversed(range((most.bit_length() + 1) // 2)):
        candidate = arithmetic.plus(root, 1 << place)
        root = arithmetic.chosen(arithmetic.quotient(x, candidate), candidate, candidate, root)
    return root


def root_fraction(arithmetic: Roots[Value], root: Value, remainder: Value, digits: int) -> Value:
    """floor(2^digits sqrt(x)) from root = floor(sqrt(x)) and remainder = x - root^2.

    The remainder R = 4^k x - r^2 <= 2 r of k digits is carried on: the next digit is 1 where 4 r + 1 <= 4 R, whose
    difference is the next remainder.
    """
    for _ in range(digits):
        remainder, doubled = arithmetic.times(remainder, 4), arithmetic.times(root, 2)
        trial = arithmetic.plus(arithmetic.times(doubled, 2), 1)
        rest = arithmetic.minus(remainder, trial)
        root = arithmetic.chosen(remainder, trial, arithmetic.plus(doubled, 1), doubled)
        remainder = arithmetic.chosen(remainder, trial, rest, remainder)
    return root


def spread_data(
    node: Arrangement[Value], op: Deconvolution, data: Value, shape: Sequence[int], zero: int = 0
) -> tuple[Value, tuple[int, ...]]:
    """The data (N, C, *spatial) of a deconvolution with zeros between, as an equal convolution reads it; its shape.

    stride - 1 zeros stand between the elements, and around them as many as the kernel reaches. The convolution has the
    weight of `turned_weight`, the deconvolution's dilate, stride 1 and no padding. zero: what stands for 0.
    """
    (batch, channels, *spatial), rank = shape, len(op.kernel)
    stride, dilate = op.window(rank)
    pad, adj = op.border(tuple(spatial))
    outside = (0, 0)
    if max(stride) > 1:
        data = node.reshaped(data, (batch, channels, *(length for n in spatial for length in (n, 1))))
        gaps = (*outside, *(length for step in stride for length in (0, step - 1)))
        data = node.padded(data, (0,) * len(gaps), gaps, zero)
        spatial = [n * step for n, step in zip(spatial, stride, strict=True)]
        data = node.reshaped(data, (batch, channels, *spatial))
    reach = [d * (k - 1) for k, d in zip(op.kernel, dilate, strict=True)]
    # Behind the last element stride - 1 zeros stand already.
    before = [r - p for r, p in zip(reach, pad, strict=True)]
    after = [r - p + a - (step - 1) for r, p, a, step in zip(reach, pad, adj, stride, strict=True)]
    cuts = [slice(max(-b, 0), n - max(-a, 0)) for b, n, a in zip(before, spatial, after, strict=True)]
    data = node.sliced(data, [slice(None), slice(None), *cuts], (batch, channels, *spatial))
    grown = [max(b, 0) for b in before], [max(a, 0) for a in after]
    data = node.padded(data, (*outside, *grown[0]), (*outside, *grown[1]), zero)
    return data, (batch, channels, *(b + n + a for b, n, a in zip(before, spatial, after, strict=True)))


def turned_weight(
    node: Arrangement[Value], op: Deconvolution, weight: Value, shape: Sequence[int]
) -> tuple[Value, tuple[int, ...]]:
    """A weight (C, O / num_group, *kernel), of `shape`, as (O, C / num_group, *kernel), taps in reverse; its shape."""
    (channels, filters, *kernel), groups = shape, op.num_group
    apart = node.reshaped(weight, (groups, channels // groups, filters, *kernel))
    rows = node.transposed(apart, (0, 2, 1, *range(3, 3 + len(kernel))))
    turned = (groups * filters, channels // groups, *kernel)
    backward = (slice(None), slice(None), *(slice(None, None, -1),) * len(kernel))
    return node.sliced(node.reshaped(rows, turned), backward, turned), turned


def is_global(op: Pooling, shape: Sequence[int]) -> bool:
    """Whether a pooling has one window, the whole of data of `shape`."""
    windows = op.windows(shape[2:])
    return all(len(found) == 1 and found[0][:2] == (0, n) for found, n in zip(windows, shape[2:], strict=True))


def window_padding(
    op: Pooling, shape: Sequence[int], result: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The stride of a pooling of data of `shape`, and the padding before and after that its last windows need.

    What no window reaches at an axis' end is left where it is. result: the pooling's shape.
    """
    rank = len(shape) - 2
    stride = op.stride or (1,) * rank
    before, _ = op.pads(rank)
    needed = [(m - 1) * s + k for m, s, k in zip(result[2:], stride, op.kernel, strict=True)]
    after = tuple(max(m - n - b, 0) for n, b, m in zip(shape[2:], before, needed, strict=True))
    return stride, before, after


def pooled(
    node: Arrangement[Value],
    op: Pooling,
    data: Value,
    shape: Sequence[int],
    result: Sequence[int],
    border: int,
    combine: Callable[[Value, Value], Value],
) -> Value:
    """`combine` over every window of data of `shape`, one axis after the other: windows are products of intervals.

    border: what stands outside of the data and changes no result.
    """
    stride, before, after = window_padding(op, shape, result)
    data = node.padded(data, (0, 0, *before), (0, 0, *after), border)
    grown = [*shape[:2], *(n + b + a for n, b, a in zip(shape[2:], before, after, strict=True))]
    for axis, (kernel, step) in enumerate(zip(op.kernel, stride, strict=True), start=2):
        span = (result[axis] - 1) * step + 1
        whole = [slice(None)] * len(grown)
        taps = [
            node.sliced(data, [*whole[:axis], slice(tap, tap + span, step), *whole[axis + 1 :]], grown)
            for tap in range(kernel)
        ]
        data = reduce(combine, taps)
        grown[axis] = result[axis]
    return data


def from_depth(node: Arrangement[Value], data: Value, shape: Sequence[int], size: int) -> Value:
    """MXNet's depth_to_space of data of `shape`: blocks of channels, the outermost first, as blocks of the image."""
    batch, channels, height, width = shape
    blocks = node.reshaped(data, (batch, size, size, channels // (size * size), height, width))
    moved = node.transposed(blocks, (0, 3, 4, 1, 5, 2))
    return node.reshaped(moved, (batch, channels // (size * size), height * size, width * size))


def to_depth(node: Arrangement[Value], data: Value, shape: Sequence[int], size: int) -> Value:
    """MXNet's space_to_depth of data of `shape`, which `from_depth` undoes."""
    batch, channels, height, width = shape
    blocks = node.reshaped(data, (batch, channels, height // size, size, width // size, size))
    moved = node.transposed(blocks, (0, 3, 5, 1, 2, 4))
    return node.reshaped(moved, (batch, channels * size * size, height // size, width // size))
