"""Pooling: maximum, average and sum over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from mrt.backend.computes.convolution import Window, reduce_window
from mrt.backend.machine import Machine
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, constant, ordered
from mrt.symbol import Array, Interval, Symbol
from mrt.symbol.operators.pooling import Pooling


def request_channels(
    symbol: Symbol, values: Sequence[Array | None], bounds: Sequence[Interval], machine: Machine
) -> LayoutRequest:
    return LayoutRequest(1)


@compute(Pooling, kind=Kind.WINDOW, layout_requests={0: request_channels})
def pooling(symbol: Symbol[Pooling], data: View) -> View:
    """For a maximum the border repeats the nearest element, which is in the same window."""
    operator, dtype = symbol.operator, ordered(symbol.dtype)
    window = pooling_window(symbol)
    lengths = symbol.inputs[0].shape[2:]
    is_max = operator.pool_type == "max"
    batch, channels, *spatial = symbol.shape

    def term(at: Sequence[Expression], taps: Sequence[Any]) -> Expression:
        n, *position, channel = at
        places = [p - b if b else p for p, b in zip(window.places(position, taps), window.before, strict=True)]
        reach = [window.extent(axis, count) - window.before[axis] for axis, count in enumerate(spatial)]
        inside, near = [], []
        for place, before, length, end in zip(places, window.before, lengths, reach, strict=True):
            inside += [place >= 0] if before else []
            inside += [place < length] if end > length else []
            low = te.max(place, 0) if before else place
            near.append(te.min(low, length - 1) if end > length else low)
        value = data(n, channel, *near).astype(dtype)
        return value if is_max or not inside else tirx.if_then_else(tirx.all(*inside), value, constant(0, dtype))

    shape = (batch, *spatial, data.length if data.inner == 1 else channels)
    combine, reducer = (te.max, te.max) if is_max else (None, te.sum)
    found = reduce_window(shape, window.kernel, term, "pooling", dtype, combine, reducer, inner=-1)

    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        value = found(n, *position, channel)
        value = value / _count(symbol, window, position) if operator.pool_type == "avg" else value
        return value.astype(symbol.dtype)

    return inlined(symbol.shape, symbol.dtype, element, 1)


def pooling_window(symbol: Symbol[Pooling]) -> Window:
    """The window, all of the data where the pooling is global; pad is given for both sides or for each."""
    operator, sizes = symbol.operator, symbol.inputs[0].shape[2:]
    rank = len(sizes)
    ones, zeros = (1,) * rank, (0,) * rank
    if operator.global_pool:
        return Window(sizes, ones, ones, zeros, zeros)
    pad = operator.pad or zeros
    return Window(operator.kernel, operator.stride or ones, ones, pad[:rank], pad[-rank:])


def _count(symbol: Symbol[Pooling], window: Window, position: Sequence[Expression]) -> Expression:
    """By how many elements the average at a position divides: those of the data, and of the pad if it counts."""
    total: Expression = None
    for axis, n in enumerate(symbol.inputs[0].shape[2:]):
        kernel, before, after = window.kernel[axis], window.before[axis], window.after[axis]
        start = position[axis] * window.stride[axis] - before
        first, last = (-before, n + after) if symbol.operator.count_include_pad else (0, n)
        inside = te.min(start + kernel, constant(last, "int32")) - te.max(start, constant(first, "int32"))
        total = inside if total is None else total * inside
    return total.astype(symbol.dtype)
