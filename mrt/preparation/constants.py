"""Constant operands in normal form: on the right, of the result's rank, no larger than they must be."""

from __future__ import annotations

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul


def operation_with_constant(symbol: Symbol) -> Operation | None:
    """The operation of a broadcast_add or broadcast_mul, as which arithmetic with a constant is written; None for any
    other operator."""
    return symbol.operator.operation if isinstance(symbol.operator, (BroadcastAdd, BroadcastMul)) else None


def feeds_only_one(graph: Graph, symbol: Symbol) -> bool:
    """Whether one consumer reads `symbol` once and no output gives it, so that changing it is unseen elsewhere."""
    return len(graph.consumers[symbol]) == 1 and symbol not in graph.outputs


def ranked(value: Array, rank: int) -> Array:
    """`value` with leading axes of length 1 up to `rank`."""
    return value.reshape((1,) * (rank - value.ndim) + value.shape)


def compact(value: Array, shape: tuple[int, ...]) -> Array:
    """`value` with every axis along which it is uniform cut to length 1, where `shape` still supplies the length.

    value: an operand of the rank of `shape`. shape: what the other operand broadcasts from. Broadcasting the result
    against `shape` gives what `value` would.
    """
    for axis, length in enumerate(value.shape):
        first = value.take([0], axis) if length > 1 else value
        if length > 1 and shape[axis] == length and bool(np.all(value == first)):
            value = first
    return value


def add_constant(builder: GraphBuilder, data: Symbol, value: Array, name: str, constant: str) -> Symbol:
    """data + value as a broadcast_add called `name`; `constant` names the parameter."""
    return builder.apply(BroadcastAdd(), (data, _parameter(builder, data, value, constant)), name)


def multiply_by_constant(builder: GraphBuilder, data: Symbol, value: Array, name: str, constant: str) -> Symbol:
    """data * value as a broadcast_mul called `name`; `constant` names the parameter."""
    return builder.apply(BroadcastMul(), (data, _parameter(builder, data, value, constant)), name)


def representable(value: Array, dtype: str) -> bool:
    """Whether `value` (float64) is finite, and stays so as `dtype`."""
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(np.asarray(value).astype(dtype))))


def _parameter(builder: GraphBuilder, data: Symbol, value: Array, name: str) -> Symbol:
    rank = max(data.type.rank, value.ndim)
    shape = (1,) * (rank - data.type.rank) + data.shape
    return builder.parameter(name, compact(ranked(value, rank), shape).astype(data.dtype))
