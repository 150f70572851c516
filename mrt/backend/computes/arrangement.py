"""Operators that exchange axes, repeat elements, or move elements between channels and space."""

from __future__ import annotations

from math import prod

from tvm import tirx

from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.operators.neighbours import Neighbours
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, Tensor, ravel, remainder, unravel, whole_part
from mrt.symbol import Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling


@compute(SwapAxis)
def swap_axis(symbol: Symbol[SwapAxis], data: Tensor) -> Tensor:
    first, second = symbol.operator.axes(len(symbol.shape))

    def element(*at: Expression) -> Expression:
        places = list(at)
        places[first], places[second] = at[second], at[first]
        return data(*places)

    return inlined(symbol.shape, symbol.dtype, element)


@compute(SliceLike, kind=Kind.GATHER)
def slice_like(symbol: Symbol, data: Tensor, like: Tensor) -> Tensor:
    """The second tensor's shape decided the symbol's; its values are not read."""
    return inlined(symbol.shape, symbol.dtype, lambda *at: data(*at))


@compute(Tile, kind=Kind.GATHER)
def tile(symbol: Symbol[Tile], data: Tensor) -> Tensor:
    shape, reps = symbol.operator.aligned(symbol.inputs[0].shape)
    added = len(shape) - len(data.shape)

    def element(*at: Expression) -> Expression:
        places = [i if r == 1 else tirx.floormod(i, n) for i, n, r in zip(at, shape, reps, strict=True)]
        return data(*places[added:])

    return inlined(symbol.shape, symbol.dtype, element)


def _kind_of_repeat(symbol: Symbol[Repeat]) -> Kind:
    """Neighbouring channels stay neighbours where others than they are repeated."""
    axis = symbol.operator.axis
    return Kind.OTHER if axis is None or axis % symbol.type.rank == 1 else Kind.GATHER


@compute(Repeat, kind=_kind_of_repeat)
def repeat(symbol: Symbol[Repeat], data: Tensor) -> Tensor:
    operator, source = symbol.operator, symbol.inputs[0].shape

    def element(*at: Expression) -> Expression:
        if operator.axis is None:
            return data(*unravel(whole_part(at[0], operator.repeats), source))
        axis = operator.axis % len(source)
        return data(*at[:axis], whole_part(at[axis], operator.repeats), *at[axis + 1 :])

    return inlined(symbol.shape, symbol.dtype, element)


@compute(UpSampling, kind=Kind.GATHER)
def up_sampling(symbol: Symbol[UpSampling], data: Tensor) -> Tensor:
    scale = symbol.operator.scale
    return inlined(
        symbol.shape,
        symbol.dtype,
        lambda n, c, h, w: data(n, c, whole_part(h, scale), whole_part(w, scale)),
    )


@compute(JoinPhases, kind=Kind.GATHER)
def join_phases(symbol: Symbol[JoinPhases], data: Tensor) -> Tensor:
    return _joined(symbol, data, symbol.operator)


@compute(Neighbours, kind=Kind.GATHER)
def neighbours(symbol: Symbol[Neighbours], data: Tensor) -> Tensor:
    operator = symbol.operator

    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        places, place = list(position), operator.axis - 2
        places[place] += remainder(channel, operator.count) * operator.step
        return data(n, whole_part(channel, operator.count), *places)

    return inlined(symbol.shape, symbol.dtype, element)


@compute(DepthToSpace, kind=Kind.GATHER)
def depth_to_space(symbol: Symbol[DepthToSpace], data: Tensor) -> Tensor:
    size = symbol.operator.block_size
    return _joined(symbol, data, JoinPhases((size, size), (0, 0), symbol.shape[2:]))


def _joined(symbol: Symbol, data: Tensor, operator: JoinPhases) -> Tensor:
    per_group, phases = symbol.shape[1] // operator.num_group, prod(operator.stride)

    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        moved = [p + first for p, first in zip(position, operator.begin, strict=True)]
        phase = ravel([remainder(p, s) for p, s in zip(moved, operator.stride, strict=True)], operator.stride)
        place = [whole_part(p, s) for p, s in zip(moved, operator.stride, strict=True)]
        if operator.num_group == 1:
            return data(n, phase * per_group + channel, *place)
        group, within = tirx.floordiv(channel, per_group), tirx.floormod(channel, per_group)
        return data(n, (group * phases + phase) * per_group + within, *place)

    return inlined(symbol.shape, symbol.dtype, element)


@compute(SpaceToDepth, kind=Kind.GATHER)
def space_to_depth(symbol: Symbol[SpaceToDepth], data: Tensor) -> Tensor:
    size, channels = symbol.operator.block_size, symbol.inputs[0].shape[1]

    def element(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        row, column, channel = unravel(c, (size, size, channels))
        return data(n, channel, h * size + row, w * size + column)

    return inlined(symbol.shape, symbol.dtype, element)
