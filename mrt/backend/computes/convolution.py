"""Convolution: dots over input channels, taps over channels in lanes where each has its own, or direct sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.generic.depthwise_taps import TapForm, pack_lanes, tap_sums
from mrt.backend.kernels.generic.dot import DotForm, dot_products, pack_bias, pack_dot
from mrt.backend.kernels.generic.sliced_dot import pack_factors, pack_slices, sliced_products
from mrt.backend.kernels.generic.winograd import pack_taps, winograd_sums
from mrt.backend.kernels.generic.winograd_choice import WinogradForm, winograd_of
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.kernels.x86.depthwise import ColumnForm, column_dot, column_sums, pack_columns
from mrt.backend.machine import Machine
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import Storage, View
from mrt.backend.operators.sliced_convolution import SlicedConvolution, folded
from mrt.backend.te.operands import FixedForm, Operand, Packed, Surroundings
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant
from mrt.symbol import Array, Interval, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.types import type_of

MAX_UNROLLED_TAPS = 49
"""Products of one output element that are written out rather than looped over."""


def request_channels(
    symbol: Symbol[Convolution], values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest | None:
    return _request(symbol, values[1], machine, Pairs(bounds[0]))


def request_sliced_channels(
    symbol: Symbol[SlicedConvolution], values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest | None:
    return _request(symbol, values[1], machine, None)


def _request(
    symbol: Symbol[Convolution], weight: Array | None, machine: Machine, pairs: Pairs | None
) -> LayoutRequest | None:
    """pairs: see `choose_dot`."""
    if weight is None:
        return None
    pad = (0, 0, *Window.of(symbol).before)
    made = LayoutRequest(1, before=pad, after=pad)
    if pairs is not None and _winograd_of(symbol, weight, machine, pairs.data) is not None:
        return made
    given = symbol.inputs[0].dtype, weight, symbol.dtype, machine
    dot = column_dot(*given) if is_depthwise(symbol) else choose_dot(*given, pairs)
    return made if dot is None else replace(made, dtype=dot.data, offset=dot.offset)


def pack_weight(symbol: Symbol[Convolution], weight: Array, surroundings: Surroundings) -> Packed | None:
    data, groups = surroundings.views[0], symbol.operator.num_group
    if data is None or data.inner != 1:
        return None
    if is_depthwise(symbol):
        window = Window.of(symbol)
        columns = pack_columns(weight, data, symbol.dtype, surroundings, window.stride[0], window.dilate[0])
        if columns is not None:
            return columns
        lanes = pack_lanes(weight, data, surroundings)
        if lanes is not None:
            return lanes
        # An int16 times a byte widened to int16 is one instruction in lanes of 32 bits.
        wide = weight.astype(np.int16) if weight.dtype.name in ("int8", "uint8") else weight
        moved = np.moveaxis(wide[:, 0], 0, -1)
        storage = Storage.with_inner(type_of(moved), moved.ndim - 1, data.length)
        return Packed(FixedForm(), (storage.lay(moved),), (storage,))
    winograd = _winograd_of(symbol, weight, surroundings.machine, surroundings.bounds[0], symbol.shape[0])
    transformed = None if winograd is None else pack_taps(weight, groups, winograd, data)
    if transformed is not None:
        return transformed
    pointwise = Window.of(symbol).is_pointwise
    return pack_dot(weight, data, symbol.dtype, surroundings, pointwise, groups, pairs=Pairs(surroundings.bounds[0]))


def _winograd_of(
    symbol: Symbol[Convolution], weight: Array, machine: Machine, bounds: Interval | None = None, samples: int = 1
) -> WinogradForm | None:
    return winograd_of(symbol.operator, symbol.inputs[0].type, weight, symbol.type, machine, bounds, samples)


def pack_sliced_weight(symbol: Symbol[SlicedConvolution], weight: Array, surroundings: Surroundings) -> Packed | None:
    data, width = surroundings.views[0], symbol.operator.width
    if data is None:
        return None
    return pack_slices(weight, data, symbol.dtype, surroundings, Window.of(symbol).is_pointwise, width)


def pack_slice_factors(symbol: Symbol[SlicedConvolution], factors: Array, surroundings: Surroundings) -> Packed | None:
    # What is known of a parameter is its value.
    weight = surroundings.bounds[1].lo
    dot = choose_dot(symbol.inputs[0].dtype, weight.astype(np.int8), symbol.dtype, surroundings.machine)
    return pack_factors(factors, folded(weight, factors, symbol.operator.width), dot, surroundings)


def pack_convolution_bias(symbol: Symbol, bias: Array, surroundings: Surroundings) -> Packed | None:
    return pack_bias(bias, surroundings)


def is_depthwise(symbol: Symbol[Convolution]) -> bool:
    """Whether each channel of the output is made of the one of the data."""
    return symbol.operator.num_group == symbol.shape[1] == symbol.inputs[0].shape[1]


@compute(
    Convolution,
    kind=Kind.WINDOW,
    layout_requests={0: request_channels},
    packings={1: pack_weight, 2: pack_convolution_bias},
)
def convolution(symbol: Symbol[Convolution], data: View, weight: Tensor, bias: Tensor | None = None) -> View:
    form = weight.form if isinstance(weight, Operand) else None
    if isinstance(form, DotForm) and not isinstance(form, TapForm):
        if isinstance(form, WinogradForm):
            return winograd_convolution(symbol, data, weight, bias)
        dots = column_convolution if isinstance(form, ColumnForm) else dot_convolution
        return dots(symbol, data, weight, bias)
    depthwise = tap_convolution if isinstance(form, TapForm) else depthwise_convolution
    result = (direct_convolution if form is None else depthwise)(symbol, data, weight)
    if bias is None:
        return result
    return inlined(symbol.shape, symbol.dtype, lambda *at: result(*at) + bias(at[1]).astype(symbol.dtype), 1)


@compute(
    SlicedConvolution,
    kind=Kind.WINDOW,
    layout_requests={0: request_sliced_channels},
    packings={1: pack_sliced_weight, 2: pack_slice_factors},
)
def sliced_convolution(symbol: Symbol[SlicedConvolution], data: View, weight: Operand, factors: Operand) -> View:
    return dot_convolution(symbol, data, weight, None, factors)


def dot_convolution(
    symbol: Symbol[Convolution], data: View, weight: Operand, bias: Tensor | None, factors: Operand | None = None
) -> View:
    """Output channels in lanes, input channels in dots, in slices where these have factors."""
    operator, window = symbol.operator, Window.of(symbol)
    shape = (symbol.shape[0], *symbol.shape[2:])

    def places(position: Sequence[Expression], taps: Sequence[Expression]) -> list[Expression]:
        n, *rest = position
        return [n, *window.bordered(rest, taps)]

    if factors is None:
        sums = dot_products(data, weight, shape, operator.kernel, places, bias)
    else:
        sums = sliced_products(data, weight, factors, shape, operator.kernel, places)
    return inlined(symbol.shape, symbol.dtype, lambda n, c, *position: sums(c, n, *position), 1)


def column_convolution(symbol: Symbol[Convolution], data: View, weight: Operand, bias: Tensor | None) -> View:
    """Channels in lanes, the taps of a column in dots."""
    window, (batch, _, *spatial) = Window.of(symbol), symbol.shape
    sums = column_sums(data, weight, (batch, *spatial), window.kernel, window.bordered, bias)
    return inlined(symbol.shape, symbol.dtype, lambda n, c, *position: sums(c, n, *position), 1)


def tap_convolution(symbol: Symbol[Convolution], data: View, weight: Operand) -> View:
    """Channels in lanes, a tap of some positions after the other."""
    window, (batch, _, *spatial) = Window.of(symbol), symbol.shape
    sums = tap_sums(data, weight, (batch, *spatial), window.kernel, window.bordered)
    return inlined(symbol.shape, symbol.dtype, lambda n, c, *position: sums(c, n, *position), 1)


def winograd_convolution(symbol: Symbol[Convolution], data: View, weight: Operand, bias: Tensor | None) -> View:
    """Tiles of positions by products of transformed data and weights."""
    shape = symbol.shape[0], *symbol.shape[2:]
    sums = winograd_sums(data, weight, shape, Window.of(symbol).bordered, bias)
    return inlined(symbol.shape, symbol.dtype, lambda n, c, *position: sums(c, n, *position), 1)


def depthwise_convolution(symbol: Symbol[Convolution], data: View, weight: Operand) -> View:
    """Channels in lanes, all taps of a position after each other."""
    window, dtype = Window.of(symbol), symbol.dtype
    (taps_of,) = weight.views

    def product(at: Sequence[Expression], taps: Sequence[Any]) -> Expression:
        n, *position, channel = at
        x = data(n, channel, *window.bordered(position, taps))
        return x.astype(dtype) * taps_of(*taps, channel).astype(dtype)

    batch, _, *spatial = symbol.shape
    sums = reduce_window((batch, *spatial, data.length), window.kernel, product, "depthwise", dtype=dtype, inner=-1)
    return inlined(symbol.shape, dtype, lambda n, c, *position: sums(n, *position, c), 1)


def direct_convolution(symbol: Symbol[Convolution], data: View, weight: Tensor) -> View:
    """The sum of all taps for each position, in the graph's layout."""
    operator, dtype = symbol.operator, symbol.dtype
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

    sums = reduce_window(symbol.shape, (group_inputs, *operator.kernel), product, "convolution", dtype=dtype)
    return inlined(symbol.shape, dtype, lambda *at: sums(*at))


def reduce_window(
    shape: tuple[int, ...],
    reduction: Sequence[int],
    term: Any,
    name: str,
    dtype: str,
    combine: Any = None,
    reducer: Any = te.sum,
    inner: int | None = None,
) -> Tensor:
    """`term(index, reduction index)` combined over a window: written out where it is small, else as a reduction.

    combine: of two expressions, addition by default. reducer: the same as a TE reduction. inner: see `Hint.INNER`.
    """
    combine = combine or (lambda a, b: a + b)
    axis = None if inner is None else inner % len(shape)
    if math.prod(reduction) > MAX_UNROLLED_TAPS:
        axes = [te.reduce_axis((0, n), f"r{i}") for i, n in enumerate(reduction)]
        return stage(shape, lambda *at: reducer(term(at, axes), axis=axes), name, inner=axis)

    def body(*at: Expression) -> Expression:
        total: Expression = None
        for tap in range(math.prod(reduction)):
            value = term(at, [constant(int(i), "int32") for i in _unravel_int(tap, reduction)])
            total = value if total is None else combine(total, value)
        return total

    return inlined(shape, dtype, body, axis)


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
    def of(cls, symbol: Symbol[Convolution]) -> Window:
        operator = symbol.operator
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

    def bordered(self, position: Sequence[Expression], taps: Sequence[Expression]) -> list[Expression]:
        """Where it lies in the data, whose border in memory is the pad."""
        return [p - n if n else p for p, n in zip(self.places(position, taps), self.before, strict=True)]


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


def _unravel_int(flat: int, shape: Sequence[int]) -> list[int]:
    at: list[int] = []
    for n in reversed(shape):
        at.insert(0, flat % n)
        flat //= n
    return at
