"""Pooling: maximum, average and sum over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from mrt.backend.compute import Expression, Tensor, compute, constant, record, stage
from mrt.backend.computes.convolution import Window, padded_data, reduce_window
from mrt.symbol import Symbol
from mrt.symbol.operators.pooling import Pooling


@compute("Pooling")
def pooling(symbol: Symbol, data: Tensor) -> Tensor:
    """A maximum's border is the dtype's lowest value, which never wins: every window holds an element."""
    operator, dtype = record(symbol, Pooling), symbol.dtype
    window = pooling_window(symbol)
    is_max = operator.pool_type == "max"
    border = tirx.min_value(dtype).value if is_max else 0
    source = padded_data(data, window, symbol.shape[2:], border)

    def term(at: Sequence[Expression], taps: Sequence[Any]) -> Expression:
        n, channel, *position = at
        return source(n, channel, *window.places(position, taps)).astype(dtype)

    if is_max:
        return reduce_window(symbol.shape, window.kernel, term, "max_pooling", te.max, te.max)
    total = reduce_window(symbol.shape, window.kernel, term, "sum_pooling")
    if operator.pool_type == "sum":
        return total
    return stage(symbol.shape, lambda *at: total(*at) / _count(symbol, window, at[2:]), "average_pooling")


def pooling_window(symbol: Symbol) -> Window:
    """The window, all of the data where the pooling is global; pad is given for both sides or for each."""
    operator, sizes = record(symbol, Pooling), symbol.inputs[0].shape[2:]
    rank = len(sizes)
    ones, zeros = (1,) * rank, (0,) * rank
    if operator.global_pool:
        return Window(sizes, ones, ones, zeros, zeros)
    pad = operator.pad or zeros
    return Window(operator.kernel, operator.stride or ones, ones, pad[:rank], pad[-rank:])


def _count(symbol: Symbol, window: Window, position: Sequence[Expression]) -> Expression:
    """By how many elements the average at a position divides: those of the data, and of the pad if it counts."""
    total: Expression = None
    for axis, n in enumerate(symbol.inputs[0].shape[2:]):
        kernel, before, after = window.kernel[axis], window.before[axis], window.after[axis]
        start = position[axis] * window.stride[axis] - before
        first, last = (-before, n + after) if record(symbol, Pooling).count_include_pad else (0, n)
        inside = te.min(start + kernel, constant(last, "int32")) - te.max(start, constant(first, "int32"))
        total = inside if total is None else total * inside
    return total.astype(symbol.dtype)
