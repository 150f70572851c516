"""Pooling as TVM has it where the operator Pooling has not: averages of integers, windows that hold padding only."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.tvm.division import cut_quotient
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import SliceAxis


@dataclass(frozen=True)
class _Run:
    """The windows along one axis that hold elements, which follow each other, and how many others lie around them.

    begin: the place of the first one, below 0 in the padding. counts: what an average of each divides by.
    """

    begin: int
    kernel: int
    stride: int
    counts: tuple[int, ...]
    before: int
    after: int

    def reach(self, length: int) -> int:
        """How far the last window lies beyond an axis of this length."""
        return max(self.begin + (len(self.counts) - 1) * self.stride + self.kernel - length, 0)


def windowed(node: TVMNode, data: Symbol, operator: Pooling, suffix: str, drops_last: bool = False) -> Symbol:
    """`operator` of data with its channels first.

    Case 1: it is what TVM computes. Case 2: an average of integers is their sum divided, cut towards 0; the sum must
    fit the data's dtype, as it must there. Case 3: a window of padding only gives 0, or the lowest number of the dtype
    as a maximum; the other windows are pooled, with a border of that. drops_last: whether a last window that starts
    behind the data is left out.
    """
    spatial = data.shape[2:]
    runs = _runs(node, operator, data, drops_last)
    is_whole = [len(run.counts) for run in runs] == [len(window) for window in operator.windows(spatial)]
    is_average, is_integer = operator.pool_type == "avg", data.type.is_integer
    if is_whole and not (is_average and is_integer):
        return node.apply(operator, [data], suffix)
    borders = [width for run in runs for width in (run.before, run.after)]
    inner = suffix if not any(borders) else _named("inner", suffix)
    result = _pooled(node, data, operator, runs, _named("sum", suffix) if is_average else inner)
    if is_average:
        result = _average(node, result, data.dtype, _divisors(runs), inner)
    if not any(borders):
        return result
    fill = 0.0 if is_average else float(np.iinfo(data.dtype).min if is_integer else np.finfo(np.float32).min)
    return node.apply(Pad(pad_width=(0, 0, 0, 0, *borders), constant_value=fill), [result], suffix)


def _runs(node: TVMNode, operator: Pooling, data: Symbol, drops_last: bool) -> list[_Run]:
    """Those along every spatial axis; GraphError where no window along one holds an element."""
    spatial = data.shape[2:]
    if operator.global_pool:
        return [_Run(0, length, 1, (length,), 0, 0) for length in spatial]
    runs = []
    for place, windows in enumerate(operator.windows(spatial)):
        kernel, stride = operator.kernel[place], operator.stride[place]
        first = -operator.pads(len(spatial))[0][place]
        if drops_last and windows and first + (len(windows) - 1) * stride >= spatial[place]:
            windows = windows[:-1]
        filled = [index for index, (start, stop, _) in enumerate(windows) if stop > start]
        if not filled:
            raise GraphError(f"{node.label}: no window along axis {place + 2} of {data.type} holds an element")
        held = windows[filled[0] : filled[-1] + 1]
        counts = tuple(full if operator.count_include_pad else stop - start for start, stop, full in held)
        begin, after = first + filled[0] * stride, len(windows) - 1 - filled[-1]
        runs.append(_Run(begin, kernel, stride, counts, filled[0], after))
    return runs


def _pooled(node: TVMNode, data: Symbol, operator: Pooling, runs: list[_Run], suffix: str) -> Symbol:
    """The maxima or sums of the windows of these runs."""
    kernels = tuple(run.kernel for run in runs)
    for axis, run in enumerate(runs, start=2):
        if run.begin > 0:
            cut = SliceAxis(axis=axis, begin=run.begin, end=None)
            data = node.apply(cut, [data], _named(f"axis{axis}", suffix))
    begins = tuple(max(-run.begin, 0) for run in runs)
    ends = tuple(run.reach(length + max(run.begin, 0)) for run, length in zip(runs, data.shape[2:], strict=True))
    kind = "sum" if operator.pool_type == "avg" else operator.pool_type
    strides = tuple(run.stride for run in runs)
    pooling = Pooling(kernel=kernels, pool_type=kind, stride=strides, pad=begins if begins == ends else begins + ends)
    return node.apply(pooling, [data], suffix)


def _divisors(runs: list[_Run]) -> Array:
    """What the average of each window divides by: one number where all are alike, else of the spatial shape."""
    if all(len(set(run.counts)) == 1 for run in runs):
        return np.asarray(prod(run.counts[0] for run in runs))
    result: Array = np.ones((), np.int64)
    for run in runs:
        result = result[..., None] * np.asarray(run.counts)
    return result


def _average(node: TVMNode, sums: Symbol, dtype: str, divisors: Array, suffix: str) -> Symbol:
    if sums.type.is_float:
        factors = node.parameter((1 / divisors).astype(np.float32), _named("factor", suffix))
        return node.apply(BroadcastMul(), [sums, factors], suffix)
    divisor = node.parameter(divisors.astype(np.int32), _named("count", suffix))
    if sums.dtype == dtype:
        return cut_quotient(node, sums, divisor, suffix)
    held = node.apply(Cast(dtype=dtype), [sums], _named("held", suffix))
    quotient = cut_quotient(node, held, divisor, _named("quotient", suffix))
    return node.apply(Cast(dtype=dtype), [quotient], suffix)


def _named(role: str, suffix: str) -> str:
    return f"{suffix}_{role}" if suffix else role
