"""Operators that exchange axes, repeat elements, or move elements between channels and space."""

from __future__ import annotations

from tvm import tirx

from mrt.backend.te.registry import Kind, compute, record
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, Tensor, ravel, unravel, whole_part
from mrt.symbol import Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SpaceToDepth, SwapAxis, Tile, UpSampling


@compute("SwapAxis")
def swap_axis(symbol: Symbol, data: Tensor) -> Tensor:
    first, second = record(symbol, SwapAxis).axes(len(symbol.shape))

    def element(*at: Expression) -> Expression:
        places = list(at)
        places[first], places[second] = at[second], at[first]
        return data(*places)

    return inlined(symbol.shape, symbol.dtype, element)


@compute("slice_like", kind=Kind.GATHER)
def slice_like(symbol: Symbol, data: Tensor, like: Tensor) -> Tensor:
    """The second tensor's shape decided the symbol's; its values are not read."""
    return inlined(symbol.shape, symbol.dtype, lambda *at: data(*at))


@compute("tile", kind=Kind.GATHER)
def tile(symbol: Symbol, data: Tensor) -> Tensor:
    shape, reps = record(symbol, Tile).aligned(symbol.inputs[0].shape)
    added = len(shape) - len(data.shape)

    def element(*at: Expression) -> Expression:
        places = [i if r == 1 else tirx.floormod(i, n) for i, n, r in zip(at, shape, reps, strict=True)]
        return data(*places[added:])

    return inlined(symbol.shape, symbol.dtype, element)


@compute("repeat")
def repeat(symbol: Symbol, data: Tensor) -> Tensor:
    operator, source = record(symbol, Repeat), symbol.inputs[0].shape

    def element(*at: Expression) -> Expression:
        if operator.axis is None:
            return data(*unravel(whole_part(at[0], operator.repeats), source))
        axis = operator.axis % len(source)
        return data(*at[:axis], whole_part(at[axis], operator.repeats), *at[axis + 1 :])

    return inlined(symbol.shape, symbol.dtype, element)


@compute("UpSampling", kind=Kind.GATHER)
def up_sampling(symbol: Symbol, data: Tensor) -> Tensor:
    scale = record(symbol, UpSampling).scale
    return inlined(
        symbol.shape,
        symbol.dtype,
        lambda n, c, h, w: data(n, c, whole_part(h, scale), whole_part(w, scale)),
    )


@compute("depth_to_space")
def depth_to_space(symbol: Symbol, data: Tensor) -> Tensor:
    size, channels = record(symbol, DepthToSpace).block_size, symbol.shape[1]

    def element(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        block = ravel((tirx.floormod(h, size), tirx.floormod(w, size)), (size, size))
        return data(n, block * channels + c, whole_part(h, size), whole_part(w, size))

    return inlined(symbol.shape, symbol.dtype, element)


@compute("space_to_depth")
def space_to_depth(symbol: Symbol, data: Tensor) -> Tensor:
    size, channels = record(symbol, SpaceToDepth).block_size, symbol.inputs[0].shape[1]

    def element(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        row, column, channel = unravel(c, (size, size, channels))
        return data(n, channel, h * size + row, w * size + column)

    return inlined(symbol.shape, symbol.dtype, element)
