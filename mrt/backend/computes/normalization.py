"""Normalizations, softmax, and operators that do nothing after training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from mrt.backend.computes.reduce import reduced
from mrt.backend.kernels.generic.dot import pack_bias
from mrt.backend.kernels.generic.rows import reduced_rows, stored_rows, whole_rows
from mrt.backend.kernels.generic.transcendental import exp
from mrt.backend.memory.storage import View
from mrt.backend.te.operands import Packed, Surroundings
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise, inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.normalization import BatchNorm, Dropout, Identity, LayerNorm, LogSoftmax, Softmax
from mrt.symbol.operators.state import Assign


@compute(BatchNorm)
def batch_norm(
    symbol: Symbol[BatchNorm], data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor
) -> Tensor:
    operator, dtype = symbol.operator, symbol.dtype
    axis = operator.axis % len(symbol.shape)

    def element(*at: Expression) -> Expression:
        channel = at[axis]
        deviation = te.sqrt(moving_var(channel).astype(dtype) + constant(operator.eps, dtype))
        scale = constant(1, dtype) if operator.fix_gamma else gamma(channel).astype(dtype)
        centred = data(*at) - moving_mean(channel).astype(dtype)
        return centred * (scale / deviation) + beta(channel).astype(dtype)

    return stage(symbol.shape, element, "batch_norm")


def _kind(symbol: Symbol[LayerNorm | Softmax | LogSoftmax]) -> Kind:
    """A normalization where what is normalized are rows, along the last of several axes."""
    rank = symbol.type.rank
    by_rows = rank > 1 and symbol.operator.axis % rank == rank - 1 and symbol.shape[-1] > 1
    return Kind.NORMALIZATION if by_rows else Kind.OTHER


def pack_by_column(symbol: Symbol[LayerNorm], value: Array, surroundings: Surroundings) -> Packed | None:
    axis = symbol.operator.axis % symbol.type.rank
    return pack_bias(value, surroundings) if surroundings.walk.inner == axis else None


@compute(LayerNorm, kind=_kind, packings={1: pack_by_column, 2: pack_by_column})
def layer_norm(symbol: Symbol[LayerNorm], data: View, gamma: View, beta: View) -> Tensor:
    """Two passes: the variance is taken of the centred values."""
    operator, dtype = symbol.operator, symbol.dtype
    axis = operator.axis % len(symbol.shape)
    count, eps = constant(symbol.shape[axis], dtype), constant(operator.eps, dtype)
    if _kind(symbol) is Kind.NORMALIZATION:
        rows = whole_rows(data)

        def by_column(value: View, column: Expression) -> Expression:
            return value(column if value.length >= rows.length else te.min(column, symbol.shape[-1] - 1)).astype(dtype)

        made = normalized_rows(symbol, rows, eps)
        return inlined(symbol.shape, dtype, lambda *at: made(*at) * by_column(gamma, at[-1]) + by_column(beta, at[-1]))
    kept = _kept(symbol, axis)

    def along(at: tuple[Expression, ...]) -> list[Expression]:
        return [0 if i == axis else place for i, place in enumerate(at)]

    total = reduced(data, [axis], kept, te.sum, dtype)
    centred = stage(symbol.shape, lambda *at: data(*at) - total(*along(at)) / count, "centred")
    squares = inlined(symbol.shape, symbol.dtype, lambda *at: centred(*at) * centred(*at))
    variance = reduced(squares, [axis], kept, te.sum, dtype)

    def element(*at: Expression) -> Expression:
        deviation = te.sqrt(variance(*along(at)) / count + eps)
        return centred(*at) / deviation * gamma(at[axis]).astype(dtype) + beta(at[axis]).astype(dtype)

    return stage(symbol.shape, element, "layer_norm")


def normalized_rows(symbol: Symbol, rows: View, eps: Expression) -> View:
    """Rows less their means, over the roots of their variances and eps."""
    shape, dtype = symbol.shape, symbol.dtype
    count = constant(shape[-1], dtype)
    total = _of_rows(rows, te.sum)
    mean = _by_row(symbol, lambda *row: total(*row) / count)
    centred = stored_rows(inlined(shape, dtype, lambda *at: rows(*at) - mean(*at)), rows.length, False)
    squares = inlined(shape, dtype, lambda *at: centred(*at) * centred(*at))
    variance = _of_rows(squares, te.sum)
    factor = _by_row(symbol, lambda *row: constant(1, dtype) / te.sqrt(variance(*row) / count + eps))
    return inlined(shape, dtype, lambda *at: centred(*at) * factor(*at))


def _of_rows(data: View, reducer: Any) -> View:
    """A number of each row, the last axis kept with length 1."""
    return reduced_rows(data, (*data.shape[:-1], 1), reducer, data.dtype)


def _by_row(symbol: Symbol, body: Callable[..., Expression]) -> Tensor:
    """A number that is computed once for each row; it is read by the index of any of the row's elements."""
    shape = (*symbol.shape[:-1], 1)
    held = stored_rows(inlined(shape, symbol.dtype, body), 1, False)
    return inlined(symbol.shape, symbol.dtype, lambda *at: held(*at[:-1], constant(0, "int32")))


@compute(Softmax, kind=_kind)
def softmax(symbol: Symbol[Softmax], data: View) -> Tensor:
    operator = symbol.operator
    if _kind(symbol) is Kind.NORMALIZATION:
        below = _below_highest_of_rows(symbol, data, operator.temperature)
        raised = stored_rows(inlined(symbol.shape, symbol.dtype, lambda *at: exp(below(*at))), below.length, False)
        sums = _of_rows(raised, te.sum)
        share = _by_row(symbol, lambda *row: constant(1, symbol.dtype) / sums(*row))
        return inlined(symbol.shape, symbol.dtype, lambda *at: raised(*at) * share(*at))
    below, along = _below_highest(symbol, data, operator.axis, operator.temperature)
    raised = stage(symbol.shape, lambda *at: exp(below(*at)), "raised")
    total = _total(symbol, raised, operator.axis)
    return stage(symbol.shape, lambda *at: raised(*at) / total(*along(at)), "softmax")


@compute(LogSoftmax, kind=_kind)
def log_softmax(symbol: Symbol[LogSoftmax], data: View) -> Tensor:
    operator = symbol.operator
    if _kind(symbol) is Kind.NORMALIZATION:
        below = _below_highest_of_rows(symbol, data, operator.temperature)
        sums = _of_rows(inlined(symbol.shape, symbol.dtype, lambda *at: exp(below(*at))), te.sum)
        share = _by_row(symbol, lambda *row: te.log(sums(*row)))
        return inlined(symbol.shape, symbol.dtype, lambda *at: below(*at) - share(*at))
    below, along = _below_highest(symbol, data, operator.axis, operator.temperature)
    raised = inlined(symbol.shape, symbol.dtype, lambda *at: exp(below(*at)))
    total = _total(symbol, raised, operator.axis)
    return stage(symbol.shape, lambda *at: below(*at) - te.log(total(*along(at))), "log_softmax")


def _below_highest_of_rows(symbol: Symbol, data: View, temperature: float | None) -> View:
    """The data over the temperature less the maximum of its row, as rows."""
    rows, divisor = whole_rows(data), constant(temperature or 1.0, symbol.dtype)
    scaled = inlined(symbol.shape, symbol.dtype, lambda *at: rows(*at) / divisor)
    highest = _of_rows(scaled, te.max)
    below = inlined(symbol.shape, symbol.dtype, lambda *at: scaled(*at) - highest(*at))
    return stored_rows(below, rows.length, False)


_Along = Callable[[tuple[Expression, ...]], list[Expression]]


def _below_highest(symbol: Symbol, data: Tensor, axis: int, temperature: float | None) -> tuple[Tensor, _Along]:
    """The data over the temperature less its maximum along the axis, and the index of a place's reduction over it."""
    axis %= len(symbol.shape)
    divisor = constant(temperature or 1.0, symbol.dtype)

    def along(at: tuple[Expression, ...]) -> list[Expression]:
        return [0 if i == axis else place for i, place in enumerate(at)]

    scaled = inlined(symbol.shape, symbol.dtype, lambda *at: data(*at) / divisor)
    highest = reduced(scaled, [axis], _kept(symbol, axis), te.max, symbol.dtype)
    below = inlined(symbol.shape, symbol.dtype, lambda *at: scaled(*at) - highest(*along(at)))
    return below, along


def _total(symbol: Symbol, data: Tensor, axis: int) -> Tensor:
    axis %= len(symbol.shape)
    return reduced(data, [axis], _kept(symbol, axis), te.sum, symbol.dtype)


def _kept(symbol: Symbol, axis: int) -> tuple[int, ...]:
    return tuple(1 if i == axis else n for i, n in enumerate(symbol.shape))


@compute(Dropout, Identity, Assign, kind=Kind.ELEMENTWISE)
def same(symbol: Symbol, data: Tensor, *unread: Tensor) -> Tensor:
    """What an Assign holds beside its value says what it is for, and is not read."""
    return elementwise(symbol, data, body=lambda x: x)
