"""Matrix products: FullyConnected and batch_dot, blocked over the columns of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import tirx

from mrt.backend.blocked import accumulate, block_rows, blocks_for, lanes_for, pack_rows, padded_positions
from mrt.backend.compute import Expression, Tensor, compute, constant, packing, record, stage, unravel
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.linear import BatchDot, FullyConnected

Source = Callable[..., Expression]


@packing("FullyConnected", 1)
def pack_weight(symbol: Symbol, weight: Array) -> Array | None:
    return pack_rows(weight)


@compute("FullyConnected")
def fully_connected(symbol: Symbol, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows are samples (flatten) or all leading positions; the reduction runs over one row of the data."""
    dtype, channels = symbol.dtype, symbol.shape[-1]
    depth = symbol.inputs[1].shape[1]
    source_shape = symbol.inputs[0].shape
    split = 1 if record(symbol, FullyConnected).flatten else len(source_shape) - 1
    leading, within = source_shape[:split], source_shape[split:]
    rows = math.prod(leading)
    if len(weight.shape) == 2:
        plain = weight
        weight = block_rows(channels, (depth,), lambda *at: plain(*at), weight.dtype)

    def element(row: Expression, k: Expression) -> Expression:
        return data(*unravel(row, leading), *unravel(k, within))

    source, padded = padded_rows(element, (), rows, depth, data.dtype)

    def product(at: Sequence[Expression], reduction: Sequence[Expression]) -> Expression:
        block, row, lane = at
        (k,) = reduction
        return source(row, k).astype(dtype) * weight(block, k, lane).astype(dtype)

    lanes = lanes_for(channels)
    sums = accumulate((blocks_for(channels), padded, lanes), 0, channels, (depth,), product, len(symbol.shape) - 1)

    def result(*at: Expression) -> Expression:
        row: Expression = constant(0, "int32")
        for i, n in zip(at[:-1], leading, strict=True):
            row = row * n + i
        value = sums(tirx.floordiv(at[-1], lanes), row, tirx.floormod(at[-1], lanes))
        return value if bias is None else value + bias(at[-1]).astype(dtype)

    return stage(symbol.shape, result, "fully_connected", inline=True)


@compute("batch_dot")
def batch_dot(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    operator, dtype = record(symbol, BatchDot), symbol.dtype
    *leading, rows, channels = symbol.shape
    depth = symbol.inputs[0].shape[-2 if operator.transpose_a else -1]

    def left(*at: Expression) -> Expression:
        *before, row, k = at
        return lhs(*before, k, row) if operator.transpose_a else lhs(*before, row, k)

    def right(*at: Expression) -> Expression:
        *before, channel, k = at
        return rhs(*before, channel, k) if operator.transpose_b else rhs(*before, k, channel)

    source, padded = padded_rows(left, leading, rows, depth, lhs.dtype)
    blocked = block_rows(channels, (depth,), right, rhs.dtype, leading=leading)

    def product(at: Sequence[Expression], reduction: Sequence[Expression]) -> Expression:
        *before, block, row, lane = at
        (k,) = reduction
        return source(*before, row, k).astype(dtype) * blocked(*before, block, k, lane).astype(dtype)

    lanes = lanes_for(channels)
    shape = (*leading, blocks_for(channels), padded, lanes)
    sums = accumulate(shape, len(leading), channels, (depth,), product, len(symbol.shape) - 1)

    def result(*at: Expression) -> Expression:
        *before, row, channel = at
        return sums(*before, tirx.floordiv(channel, lanes), row, tirx.floormod(channel, lanes))

    return stage(symbol.shape, result, "batch_dot", inline=True)


def padded_rows(element: Source, leading: Sequence[int], rows: int, depth: int, dtype: str) -> tuple[Source, int]:
    """Rows that split into register tiles, and their number: `element` itself where it has such, else a padded copy."""
    padded = padded_positions(rows)
    if padded == rows:
        return element, rows

    def body(*at: Expression) -> Expression:
        return tirx.if_then_else(at[-2] < rows, element(*at), constant(0, dtype))

    copy = stage((*leading, padded, depth), body, "rows")
    return (lambda *at: copy(*at)), padded
