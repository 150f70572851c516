"""Operators that exchange axes, repeat elements, or move elements between channels and space."""

from __future__ import annotations

from tvm import tirx

from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, Tensor, ravel, unravel, whole_part
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


@compute(Repeat)
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


@compute(DepthToSpace)
def depth_to_space(symbol: Symbol[DepthToSpace], data: Tensor) -> Tensor:
    size, channels = symbol.operator.block_size, symbol.shape[1]

    def element(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        block = ravel((tirx.floormod(h, size), tirx.floormod(w, size)), (size, size))
        return data(n, block * channels + c, whole_part(h, size), whole_part(w, size))

    return inlined(symbol.shape, symbol.dtype, element)


@compute(SpaceToDepth)
def space_to_depth(symbol: Symbol[SpaceToDepth], data: Tensor) -> Tensor:
    size, channels = symbol.operator.block_size, symbol.inputs[0].shape[1]

    def element(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        row, column, channel = unravel(c, (size, size, channels))
        return data(n, channel, h * size + row, w * size + column)

    return inlined(symbol.shape, symbol.dtype, element)
