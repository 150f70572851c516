"""Sums, means and maxima over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te

from mrt.backend.compute import compute, record
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import stage
from mrt.backend.storage import View
from mrt.symbol import Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum


@compute("sum")
def sum_over(symbol: Symbol, data: Tensor) -> Tensor:
    return reduced(data, record(symbol, Sum).axes(len(data.shape)), symbol.shape, te.sum, symbol.dtype)


@compute("mean")
def mean_over(symbol: Symbol, data: Tensor) -> Tensor:
    axes = record(symbol, Mean).axes(len(data.shape))
    count = constant(math.prod(int(data.shape[axis]) for axis in axes), symbol.dtype)
    total = reduced(data, axes, symbol.shape, te.sum, symbol.dtype)
    return stage(symbol.shape, lambda *at: total(*at) / count, "mean")


@compute("max")
def max_over(symbol: Symbol, data: Tensor) -> Tensor:
    return reduced(data, record(symbol, Max).axes(len(data.shape)), symbol.shape, te.max, symbol.dtype)


def reduced(data: Tensor, axes: Sequence[int], shape: tuple[int, ...], reducer: Any, dtype: str) -> Tensor:
    """`data` reduced over `axes`; where `shape` has the data's rank they stay with length 1, else they are dropped.

    A reduction over all axes may give the shape (1,).
    """
    rank = len(data.shape)
    loops = {axis: te.reduce_axis((0, int(data.shape[axis])), f"r{axis}") for axis in axes}
    kept = range(rank) if len(shape) == rank else [axis for axis in range(rank) if axis not in loops]

    def body(*at: Expression) -> Expression:
        places = dict(zip(kept, at, strict=False)) | {axis: loop.var for axis, loop in loops.items()}
        value = data(*(places[axis] for axis in range(rank))).astype(dtype)
        return reducer(value, axis=list(loops.values())) if loops else value

    near = data.inner if isinstance(data, View) else None
    inner = list(kept).index(near) if near is not None and near in kept and near not in loops else None
    return stage(shape, body, "reduced", inner=inner)
