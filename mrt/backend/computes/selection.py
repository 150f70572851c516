"""Operators that select values by comparison, by a condition, or by an index."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from mrt.backend.computes.activation import clipped
from mrt.backend.computes.reduce import reduced
from mrt.backend.operators.update_rows import UpdateRows
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import broadcast, elementwise, inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, dtype_of, opaque, ordered, ravel
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    Embedding,
    MaximumScalar,
    Min,
    MinimumScalar,
    Where,
)
from mrt.symbol.types import STORAGE_DTYPES


@compute(Min, kind=Kind.REDUCTION)
def min_over(symbol: Symbol[Min], data: Tensor) -> Tensor:
    return reduced(data, symbol.operator.axes(len(data.shape)), symbol.shape, te.min, symbol.dtype)


@compute(ArgMax)
def arg_max(symbol: Symbol[ArgMax], data: Tensor) -> Tensor:
    return _place_of_extreme(symbol, data, symbol.operator.axis, te.max)


@compute(ArgMin)
def arg_min(symbol: Symbol[ArgMin], data: Tensor) -> Tensor:
    return _place_of_extreme(symbol, data, symbol.operator.axis, te.min)


def _place_of_extreme(symbol: Symbol, data: Tensor, axis: int | None, reducer: Any) -> Tensor:
    """The least place at which the data is what `reducer` makes of it along `axis` (all axes if None)."""
    shape = symbol.inputs[0].shape
    if not shape:
        return inlined(symbol.shape, symbol.dtype, lambda *at: constant(0, symbol.dtype))
    axes = tuple(range(len(shape))) if axis is None else (axis % len(shape),)
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    dtype = ordered(data.dtype)
    extreme = reduced(data, axes, kept, reducer, dtype)
    loops = {a: te.reduce_axis((0, shape[a]), f"r{a}") for a in axes}
    count = ravel(tuple(constant(shape[a] - 1, "int32") for a in axes), tuple(shape[a] for a in axes)) + 1

    def place(*at: Expression) -> Expression:
        here = [loops[a].var if a in loops else at[a] for a in range(len(shape))]
        there = [0 if a in loops else at[a] for a in range(len(shape))]
        flat = ravel(tuple(here[a] for a in axes), tuple(shape[a] for a in axes))
        found = tirx.Select(data(*here).astype(dtype) == extreme(*there), flat, count)
        return te.min(found, axis=list(loops.values()))

    places = stage(kept, place, "place")

    def element(*at: Expression) -> Expression:
        given = at if len(at) == len(kept) else _with_axes(at, axes, len(kept))
        return places(*given).astype(symbol.dtype)

    return stage(symbol.shape, element, "place_of_extreme")


def _with_axes(at: tuple[Expression, ...], axes: tuple[int, ...], rank: int) -> tuple[Expression, ...]:
    """An index with zeros put in at `axes`."""
    rest = iter(at)
    return tuple(0 if axis in axes else next(rest) for axis in range(rank))


@compute(ElemwiseMaximum, BroadcastMaximum, kind=Kind.ELEMENTWISE)
def maximum(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _of_two(symbol, lhs, rhs, te.max)


@compute(ElemwiseMinimum, BroadcastMinimum, kind=Kind.ELEMENTWISE)
def minimum(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _of_two(symbol, lhs, rhs, te.min)


def _of_two(symbol: Symbol, lhs: Tensor, rhs: Tensor, choose: Any) -> Tensor:
    dtype = ordered(symbol.dtype)

    def chosen(a: Expression, b: Expression) -> Expression:
        return choose(a.astype(dtype), b.astype(dtype)).astype(symbol.dtype)

    return elementwise(symbol, lhs, rhs, body=chosen)


@compute(MaximumScalar, kind=Kind.ELEMENTWISE)
def maximum_scalar(symbol: Symbol[MaximumScalar], data: Tensor) -> Tensor:
    limit = symbol.operator.scalar
    if symbol.type.is_integer:
        return elementwise(symbol, data, body=lambda x: clipped(x, symbol.dtype, lo=limit))
    return elementwise(symbol, data, body=lambda x: te.max(x, constant(limit, symbol.dtype)))


@compute(MinimumScalar, kind=Kind.ELEMENTWISE)
def minimum_scalar(symbol: Symbol[MinimumScalar], data: Tensor) -> Tensor:
    limit = symbol.operator.scalar
    if symbol.type.is_integer:
        return elementwise(symbol, data, body=lambda x: clipped(x, symbol.dtype, hi=limit))
    return elementwise(symbol, data, body=lambda x: te.min(x, constant(limit, symbol.dtype)))


def _selects_rows(symbol: Symbol) -> bool:
    """Whether the condition of a `Where` has one element for each row, all that lies at one place of axis 0."""
    condition, *values = (source.shape for source in symbol.inputs)
    return len(Where.aligned(condition, max(map(len, values)))) != len(condition)


def _kind_of_where(symbol: Symbol) -> Kind:
    return Kind.OTHER if _selects_rows(symbol) else Kind.ELEMENTWISE


@compute(Where, kind=_kind_of_where)
def where(symbol: Symbol, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    def chosen(is_set: Expression, *values: Expression) -> Expression:
        kind = symbol.inputs[0].dtype
        found = is_set if kind == "bool" else is_set != constant(0, kind)
        return opaque(tirx.Select(found, *(value.astype(symbol.dtype) for value in values)))

    def of_rows(*at: Expression) -> Expression:
        values = [broadcast(value, at, symbol.shape) for value in (x, y)]
        return chosen(broadcast(condition, at[:1], symbol.shape[:1]), *values)

    if _selects_rows(symbol):
        return stage(symbol.shape, of_rows, "where")
    return elementwise(symbol, condition, x, y, body=chosen)


@compute(UpdateRows, updates=2)
def update_rows(symbol: Symbol[UpdateRows], condition: Tensor, rows: Tensor, held: Tensor) -> Tensor:
    def chosen(is_set: Expression, *values: Expression) -> Expression:
        return tirx.Select(is_set != constant(0, dtype_of(is_set)), *values)

    return elementwise(symbol, condition, rows, held, body=chosen)


@compute(Embedding)
def embedding(symbol: Symbol[Embedding], indices: Tensor, table: Tensor) -> Tensor:
    """Indices outside are moved to the nearest end."""
    rows = symbol.operator.input_dim
    wide = "int32" if symbol.inputs[0].dtype in STORAGE_DTYPES else "int64"

    def element(*at: Expression) -> Expression:
        row = te.max(te.min(indices(*at[:-1]).astype(wide), constant(rows - 1, wide)), constant(0, wide))
        return table(row.astype("int32"), at[-1])

    return stage(symbol.shape, element, "embedding")
