"""Matrix products: FullyConnected and batch_dot, by dots over rows; columns of the result are in lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import add

import numpy as np
from tvm import te

from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.generic.batch_dot import dot_of_matrices, matrix_products
from mrt.backend.kernels.generic.dot import DotForm, dot_products, pack_bias, pack_dot
from mrt.backend.kernels.generic.packed_slices import (
    pack_row_factors,
    pack_row_slices,
    rounded,
    rounding_of,
    row_slices,
)
from mrt.backend.kernels.generic.packed_weights import PackedDot, choose_packing
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.machine import Machine
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import View
from mrt.backend.operators.sliced_fully_connected import SlicedFullyConnected
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, combined, unravel
from mrt.symbol import Array, Interval, Symbol
from mrt.symbol.operators.linear import BatchDot, FullyConnected


def request_rows_of_data(
    symbol: Symbol[FullyConnected], values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest | None:
    weight = values[1]
    if weight is None:
        return None
    dot = choose_dot(symbol.inputs[0].dtype, weight, symbol.dtype, machine, _pairs(symbol, bounds))
    inner = 1 if symbol.operator.flatten else symbol.inputs[0].type.rank - 1
    return LayoutRequest(inner, dot.data, dot.offset)


def _pairs(symbol: Symbol[FullyConnected], bounds: Sequence[Interval]) -> Pairs:
    """Of rows that are flattened, neighbours in the weight are not those in memory."""
    return Pairs(bounds[0], not symbol.operator.flatten)


def pack_weight(symbol: Symbol[FullyConnected], weight: Array, surroundings: Surroundings) -> Packed | None:
    """The columns of a flattened tensor are split into channels and positions, as its memory is."""
    data = surroundings.views[0]
    if data is None or (data.inner is None and data.flattened is None):
        return None
    source, within = _rows(symbol, data)
    rows = weight.reshape(len(weight), *within)
    return pack_dot(rows, source, symbol.dtype, surroundings, not within[1:], pairs=_pairs(symbol, surroundings.bounds))


def pack_rows_bias(symbol: Symbol, bias: Array, surroundings: Surroundings) -> Packed | None:
    return pack_bias(bias, surroundings)


def _rows(symbol: Symbol[FullyConnected], data: View) -> tuple[View, tuple[int, ...]]:
    """The tensor whose elements the rows are, and the shape of one row: (channels, places...), or (channels,)."""
    if data.flattened is not None:
        return data.flattened, data.flattened.shape[1:]
    return data, data.shape[1:] if symbol.operator.flatten else data.shape[-1:]


@compute(
    FullyConnected,
    kind=Kind.ROWS,
    layout_requests={0: request_rows_of_data},
    packings={1: pack_weight, 2: pack_rows_bias},
)
def fully_connected(symbol: Symbol[FullyConnected], data: View, weight: Tensor, bias: Tensor | None = None) -> View:
    """Rows are samples (flatten) or all leading positions; the reduction runs over one row of the data."""
    result = _dots(symbol, data, weight) if isinstance(weight, Operand) else _direct(symbol, data, weight)
    if bias is None:
        return result
    return inlined(
        symbol.shape, symbol.dtype, lambda *at: combined(add, [result(*at), bias(at[-1]).astype(symbol.dtype)])
    )


def _dots(symbol: Symbol[FullyConnected], data: View, weight: Operand) -> View:
    source, (_, *taps) = _rows(symbol, data)

    def places(position: Sequence[Expression], tap: Sequence[Expression]) -> list[Expression]:
        return [*position, *tap]

    sums = dot_products(source, weight, symbol.shape[:-1], taps, places)
    return inlined(symbol.shape, symbol.dtype, lambda *at: sums(at[-1], *at[:-1]), symbol.type.rank - 1)


def _direct(symbol: Symbol[FullyConnected], data: View, weight: Tensor) -> View:
    dtype, source = symbol.dtype, symbol.inputs[0].shape
    split = 1 if symbol.operator.flatten else len(source) - 1
    k = te.reduce_axis((0, symbol.inputs[1].shape[1]), "k")

    def element(*at: Expression) -> Expression:
        x = data(*at[:-1], *unravel(k, source[split:]))
        return te.sum(x.astype(dtype) * weight(at[-1], k).astype(dtype), axis=k)

    total = stage(symbol.shape, element, "fully_connected")
    return inlined(symbol.shape, dtype, lambda *at: total(*at))


def choose_row_slices(
    symbol: Symbol[SlicedFullyConnected], weight: Array, surroundings: Surroundings
) -> tuple[PackedDot, tuple[int, int], bool] | None:
    """How weights in slices are packed, the blocks and inputs of memory, and whether positions are one axis."""
    data, walk = surroundings.views[0], surroundings.walk
    if data is None or data.storage is None or data.inner != len(data.shape) - 1:
        return None
    known = surroundings.bounds[0]
    dot = choose_dot(data.dtype, weight, symbol.dtype, surroundings.machine, _pairs(symbol, surroundings.bounds))
    if (data.storage.dtype, data.storage.offset) != (dot.data, dot.offset) or data.storage.depth != weight.shape[1]:
        return None
    memory, positions = (walk.storage.length // dot.lanes, weight.shape[1]), math.prod(walk.positions)
    found = choose_packing(weight, dot, (*memory, positions), known, surroundings.machine, symbol.operator.width)
    return None if found is None else (found, memory, walk.flat and data.storage.is_one_run)


def pack_sliced_weight(
    symbol: Symbol[SlicedFullyConnected], weight: Array, surroundings: Surroundings
) -> Packed | None:
    found = choose_row_slices(symbol, weight, surroundings)
    if found is None:
        return None
    factors = np.broadcast_to(surroundings.bounds[2].lo, symbol.inputs[2].shape)
    rounding = rounding_of(weight, factors, surroundings.bounds[0], symbol.operator.shift)
    return pack_row_slices(weight, *found, symbol.operator.width, rounding)


def pack_slice_factors(
    symbol: Symbol[SlicedFullyConnected], factors: Array, surroundings: Surroundings
) -> Packed | None:
    # What is known of a parameter is its value.
    weight = np.broadcast_to(surroundings.bounds[1].lo, symbol.inputs[1].shape).astype(np.int8)
    found = choose_row_slices(symbol, weight, surroundings)
    return None if found is None else pack_row_factors(factors, weight, found[0], found[1][0])


@compute(
    SlicedFullyConnected,
    kind=Kind.ROWS,
    layout_requests={0: request_rows_of_data},
    packings={1: pack_sliced_weight, 2: pack_slice_factors},
)
def sliced_fully_connected(symbol: Symbol[SlicedFullyConnected], data: View, weight: Tensor, factors: Tensor) -> View:
    """Inputs in slices, whose sums count by factors; one by one where the weights could not be packed."""
    if isinstance(weight, Operand) and isinstance(factors, Operand):
        sums = row_slices(data, weight, factors, symbol.shape[:-1], symbol.operator.shift)
        return inlined(symbol.shape, symbol.dtype, lambda *at: sums(at[-1], *at[:-1]), symbol.type.rank - 1)
    width, slices = symbol.operator.width, symbol.inputs[2].shape[0]
    k, part = te.reduce_axis((0, width), "k"), te.reduce_axis((0, slices), "slice")

    def product(number: Expression, *at: Expression) -> Expression:
        x = data(*at[:-1], number * width + k)
        return te.sum(x.astype("int32") * weight(at[-1], number * width + k).astype("int32"), axis=k)

    def term(*at: Expression) -> Expression:
        return rounded(products(part, *at) * factors(part, at[-1]).astype("int32"), symbol.operator.shift)

    products = stage((slices, *symbol.shape), product, "products")
    total = stage(symbol.shape, lambda *at: te.sum(term(*at), axis=part), "fully_connected")
    return inlined(symbol.shape, symbol.dtype, lambda *at: total(*at))


def request_rows(
    symbol: Symbol[BatchDot], values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest:
    """The left rows as dots read them; any layout if they are transposed, which copies them."""
    if symbol.operator.transpose_a:
        return LayoutRequest(None)
    dot = _dot_of(symbol, machine)
    return LayoutRequest(symbol.inputs[0].type.rank - 1, dot.data, dot.offset)


def request_matrix(
    symbol: Symbol, values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest:
    return LayoutRequest(None)


def form_matrix(symbol: Symbol[BatchDot], surroundings: Surroundings) -> DotForm:
    return DotForm(_dot_of(symbol, surroundings.machine), False, 1)


def _dot_of(symbol: Symbol[BatchDot], machine: Machine) -> Dot:
    left, right = symbol.inputs
    terms = left.shape[-2 if symbol.operator.transpose_a else -1]
    return dot_of_matrices(left.dtype, right.dtype, terms, symbol.dtype, machine)


def add_products(symbol: Symbol[BatchDot], lhs: View, rhs: View) -> View:
    """The sum of a row's products, one after the other."""
    operator, dtype = symbol.operator, symbol.dtype
    k = te.reduce_axis((0, symbol.inputs[0].shape[-2 if operator.transpose_a else -1]), "k")

    def element(*at: Expression) -> Expression:
        *before, row, column = at
        x = lhs(*before, k, row) if operator.transpose_a else lhs(*before, row, k)
        y = rhs(*before, column, k) if operator.transpose_b else rhs(*before, k, column)
        return te.sum(x.astype(dtype) * y.astype(dtype), axis=k)

    total = stage(symbol.shape, element, "batch_dot")
    return inlined(symbol.shape, dtype, lambda *at: total(*at))


@compute(
    BatchDot,
    kind=Kind.ROWS,
    on_scalars=add_products,
    layout_requests={0: request_rows, 1: request_matrix},
    forms={1: form_matrix},
)
def batch_dot(symbol: Symbol[BatchDot], lhs: View, rhs: Operand) -> View:
    operator, rank = symbol.operator, symbol.type.rank
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    left = lhs.permuted(swapped) if operator.transpose_a else lhs
    right = rhs.views[0].permuted(swapped) if operator.transpose_b else rhs.views[0]
    sums = matrix_products(left, right, rhs.form)
    return inlined(symbol.shape, symbol.dtype, lambda *at: sums(at[-1], *at[:-1]), rank - 1)
