"""Matrix products: FullyConnected and batch_dot, blocked over the columns of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from mrt.backend.blocked import accumulate, block_rows, blocks_for, lanes_for, padded_positions
from mrt.backend.compute import Kind, Wish, compute, record, wishing
from mrt.backend.expressions import Expression, Tensor, constant, unravel
from mrt.backend.kernels.dot import dot_products, pack_bias, pack_dot
from mrt.backend.kernels.instructions import choose_dot
from mrt.backend.machine import Machine
from mrt.backend.packing import Operand, Packed, Surroundings, packing
from mrt.backend.stages import inlined, stage
from mrt.backend.storage import View
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.linear import BatchDot, FullyConnected

Source = Callable[..., Expression]


@wishing("FullyConnected")
def wish(symbol: Symbol, values: Sequence[Array | None], machine: Machine) -> Wish | None:
    weight = values[1]
    if weight is None:
        return None
    dot = choose_dot(symbol.inputs[0].dtype, weight, symbol.dtype, machine)
    inner = 1 if record(symbol, FullyConnected).flatten else symbol.inputs[0].type.rank - 1
    return Wish(inner, dot.data, dot.offset)


@packing("FullyConnected", 1)
def pack_weight(symbol: Symbol, weight: Array, surroundings: Surroundings) -> Packed | None:
    """The columns of a flattened tensor are told apart into channels and places, as its memory is."""
    data = surroundings.views[0]
    if data is None or (data.inner is None and data.flattened is None):
        return None
    source, within = _rows(symbol, data)
    return pack_dot(weight.reshape(len(weight), *within), source, symbol.dtype, surroundings, not within[1:])


@packing("FullyConnected", 2)
def pack_rows_bias(symbol: Symbol, bias: Array, surroundings: Surroundings) -> Packed | None:
    return pack_bias(bias, surroundings)


def _rows(symbol: Symbol, data: View) -> tuple[View, tuple[int, ...]]:
    """The tensor whose elements the rows are, and the shape of one row: (channels, places...), or (channels,)."""
    if data.flattened is not None:
        return data.flattened, data.flattened.shape[1:]
    return data, data.shape[1:] if record(symbol, FullyConnected).flatten else data.shape[-1:]


@compute("FullyConnected", kind=Kind.ROWS)
def fully_connected(symbol: Symbol, data: View, weight: Tensor, bias: Tensor | None = None) -> View:
    """Rows are samples (flatten) or all leading positions; the reduction runs over one row of the data."""
    result = _dots(symbol, data, weight) if isinstance(weight, Operand) else _direct(symbol, data, weight)
    if bias is None:
        return result
    return inlined(symbol.shape, symbol.dtype, lambda *at: result(*at) + bias(at[-1]).astype(symbol.dtype))


def _dots(symbol: Symbol, data: View, weight: Operand) -> View:
    source, (_, *taps) = _rows(symbol, data)

    def places(position: Sequence[Expression], tap: Sequence[Expression]) -> list[Expression]:
        return [*position, *tap]

    sums = dot_products(source, weight, symbol.shape[:-1], taps, places)
    return inlined(symbol.shape, symbol.dtype, lambda *at: sums(at[-1], *at[:-1]), symbol.type.rank - 1)


def _direct(symbol: Symbol, data: View, weight: Tensor) -> View:
    dtype, source = symbol.dtype, symbol.inputs[0].shape
    split = 1 if record(symbol, FullyConnected).flatten else len(source) - 1
    k = te.reduce_axis((0, symbol.inputs[1].shape[1]), "k")

    def element(*at: Expression) -> Expression:
        x = data(*at[:-1], *unravel(k, source[split:]))
        return te.sum(x.astype(dtype) * weight(at[-1], k).astype(dtype), axis=k)

    total = stage(symbol.shape, element, "fully_connected")
    return inlined(symbol.shape, dtype, lambda *at: total(*at))


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

    return inlined(symbol.shape, dtype, result)


def padded_rows(element: Source, leading: Sequence[int], rows: int, depth: int, dtype: str) -> tuple[Source, int]:
    """Rows that split into register tiles, and their number: `element` itself where it has such, else a padded copy."""
    padded = padded_positions(rows)
    if padded == rows:
        return element, rows

    def body(*at: Expression) -> Expression:
        return tirx.if_then_else(at[-2] < rows, element(*at), constant(0, dtype))

    copy = stage((*leading, padded, depth), body, "rows")
    return (lambda *at: copy(*at)), padded
