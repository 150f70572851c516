"""Convolution: blocked over output channels where a group has several, else over the output's positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from mrt.backend.blocked import (
    accumulate,
    block_rows,
    blocks_for,
    lanes_for,
    pack_rows,
    padded_positions,
)
from mrt.backend.compute import Expression, Tensor, compute, constant, packing, ravel, record, stage, unravel
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.convolution import Convolution

MIN_BLOCKED_CHANNELS = 4
"""With fewer output channels to a group, most lanes of a block would be idle."""
MAX_UNROLLED_TAPS = 49
"""Products of one output element that are written out rather than looped over."""


@packing("Convolution", 1)
def pack_weight(symbol: Symbol, weight: Array) -> Array | None:
    return pack_rows(weight, record(symbol, Convolution).num_group) if is_blocked(symbol) else None


@compute("Convolution")
def convolution(symbol: Symbol, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    form = blocked_convolution if is_blocked(symbol) else direct_convolution
    result = form(symbol, data, weight)
    if bias is None:
        return result
    return stage(
        symbol.shape, lambda *at: result(*at) + bias(at[1]).astype(symbol.dtype), "convolution_bias", inline=True
    )


def is_blocked(symbol: Symbol) -> bool:
    return symbol.shape[1] // record(symbol, Convolution).num_group >= MIN_BLOCKED_CHANNELS


def blocked_convolution(symbol: Symbol, data: Tensor, weight: Tensor) -> Tensor:
    """Output channels in lanes; a 1x1 convolution of stride 1 takes all positions as one axis."""
    operator, dtype = record(symbol, Convolution), symbol.dtype
    window = Window.of(symbol)
    batch, channels, *spatial = symbol.shape
    groups = operator.num_group
    group_inputs = symbol.inputs[0].shape[1] // groups
    per_group = channels // groups
    blocks, lanes = blocks_for(per_group), lanes_for(per_group)
    if weight_is_plain(symbol, weight):
        plain = weight
        weight = block_rows(per_group, (group_inputs, *operator.kernel), lambda *at: plain(*at), weight.dtype, groups)

    flat = window.is_pointwise
    rows, width = ([], math.prod(spatial)) if flat else (spatial[:-1], spatial[-1])
    padded = padded_positions(width)
    if flat:
        source = flat_positions(data, padded)
    else:
        source = padded_data(data, window, [*rows, padded])

    def product(at: Sequence[Expression], reduction: Sequence[Expression]) -> Expression:
        n, block, *position, lane = at
        channel, *taps = reduction
        group = tirx.floordiv(block, blocks)
        places = position if flat else window.places(position, taps)
        x = source(n, group * group_inputs + channel, *places)
        return x.astype(dtype) * weight(block, channel, *taps, lane).astype(dtype)

    shape = (batch, groups * blocks, *rows, padded, lanes)
    sums = accumulate(shape, 1, per_group, (group_inputs, *operator.kernel), product, 1, flat)

    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        within = tirx.floormod(channel, per_group) if groups > 1 else channel
        block = tirx.floordiv(channel, per_group) * blocks if groups > 1 else 0
        places = [ravel(position, tuple(spatial))] if flat else position
        return sums(n, block + tirx.floordiv(within, lanes), *places, tirx.floormod(within, lanes))

    return stage(symbol.shape, element, "convolution", inline=True)


def direct_convolution(symbol: Symbol, data: Tensor, weight: Tensor) -> Tensor:
    """The sum of all taps for each position, whose innermost loop runs along the output's rows."""
    operator, dtype = record(symbol, Convolution), symbol.dtype
    window = Window.of(symbol)
    channels, spatial = symbol.shape[1], symbol.shape[2:]
    groups = operator.num_group
    group_inputs = symbol.inputs[0].shape[1] // groups
    per_group = channels // groups
    source = padded_data(data, window, spatial)

    def product(at: Sequence[Expression], reduction: Sequence[Any]) -> Expression:
        n, channel, *position = at
        within, *taps = reduction
        group = tirx.floordiv(channel, per_group)
        x = source(n, group * group_inputs + within, *window.places(position, taps))
        return x.astype(dtype) * weight(channel, within, *taps).astype(dtype)

    return reduce_window(symbol.shape, (group_inputs, *operator.kernel), product, "convolution")


def reduce_window(
    shape: tuple[int, ...], reduction: Sequence[int], term: Any, name: str, combine: Any = None, reducer: Any = te.sum
) -> Tensor:
    """`term(index, reduction index)` combined over a window: written out where it is small, else as a reduction.

    combine: of two expressions, addition by default. reducer: the same as a TE reduction.
    """
    combine = combine or (lambda a, b: a + b)
    if math.prod(reduction) > MAX_UNROLLED_TAPS:
        axes = [te.reduce_axis((0, n), f"r{i}") for i, n in enumerate(reduction)]
        return stage(shape, lambda *at: reducer(term(at, axes), axis=axes), name)

    def body(*at: Expression) -> Expression:
        total: Expression = None
        for tap in range(math.prod(reduction)):
            value = term(at, [constant(int(i), "int32") for i in _unravel_int(tap, reduction)])
            total = value if total is None else combine(total, value)
        return total

    return stage(shape, body, name)


def weight_is_plain(symbol: Symbol, weight: Tensor) -> bool:
    """Whether the weight comes in the graph's layout: it is no parameter that was packed while compiling."""
    return len(weight.shape) == symbol.inputs[1].type.rank


class Window:
    """The geometry of a sliding window: lengths, strides, dilations and pads (before, after) of each spatial axis."""

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilate: Sequence[int],
        before: Sequence[int],
        after: Sequence[int],
    ) -> None:
        self.kernel, self.stride, self.dilate = tuple(kernel), tuple(stride), tuple(dilate)
        self.before, self.after = tuple(before), tuple(after)

    @classmethod
    def of(cls, symbol: Symbol) -> Window:
        operator = record(symbol, Convolution)
        ones, zeros = (1,) * len(operator.kernel), (0,) * len(operator.kernel)
        pad = operator.pad or zeros
        return cls(operator.kernel, operator.stride or ones, operator.dilate or ones, pad, pad)

    @property
    def is_pointwise(self) -> bool:
        return set(self.kernel) == {1} and set(self.stride) == {1} and not any(self.before + self.after)

    def extent(self, axis: int, positions: int) -> int:
        """How far `positions` windows reach along an axis."""
        return (positions - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilate[axis] + 1

    def places(self, position: Sequence[Expression], taps: Sequence[Expression]) -> list[Expression]:
        """Where a tap of the window at a position lies in the padded data."""
        return [p * s + t * d for p, s, t, d in zip(position, self.stride, taps, self.dilate, strict=True)]


def padded_data(data: Tensor, window: Window, positions: Sequence[int], value: float | int = 0) -> Tensor:
    """`data` (batch, channels, spatial...) with the window's pad, as far as `positions` windows of it reach.

    value: what the pad holds. Gives `data` itself where that is enough.
    """
    batch, channels, *spatial = (int(n) for n in data.shape)
    extents = [window.extent(axis, count) for axis, count in enumerate(positions)]
    if not any(window.before) and all(n <= length for n, length in zip(extents, spatial, strict=True)):
        return data

    def body(n: Expression, channel: Expression, *position: Expression) -> Expression:
        inside, places = [], []
        for p, before, length, extent in zip(position, window.before, spatial, extents, strict=True):
            if before:
                inside.append(p >= before)
            if extent > before + length:
                inside.append(p < before + length)
            places.append(p - before)
        if not inside:
            return data(n, channel, *places)
        return tirx.if_then_else(tirx.all(*inside), data(n, channel, *places), constant(value, data.dtype))

    return stage((batch, channels, *extents), body, "padded")


def flat_positions(data: Tensor, padded: int) -> Tensor:
    """`data` (batch, channels, spatial...) read as (batch, channels, positions), zeros up to `padded` positions."""
    batch, channels, *spatial = (int(n) for n in data.shape)
    count = math.prod(spatial)

    def body(n: Expression, channel: Expression, p: Expression) -> Expression:
        value = data(n, channel, *unravel(p, tuple(spatial)))
        return value if padded == count else tirx.if_then_else(p < count, value, constant(0, data.dtype))

    return stage((batch, channels, padded), body, "positions", **({"inline": True} if padded == count else {}))


def _unravel_int(flat: int, shape: Sequence[int]) -> list[int]:
    at: list[int] = []
    for n in reversed(shape):
        at.insert(0, flat % n)
        flat //= n
    return at
