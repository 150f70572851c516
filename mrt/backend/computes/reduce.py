"""Sums, means and maxima over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te

from mrt.backend.kernels.generic.rows import reduced_rows
from mrt.backend.memory.storage import VECTOR, View
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, as_term, constant, ordered
from mrt.symbol import Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.types import STORAGE_DTYPES


@compute(Sum, kind=Kind.REDUCTION)
def sum_over(symbol: Symbol[Sum], data: Tensor) -> Tensor:
    return reduced(data, symbol.operator.axes(len(data.shape)), symbol.shape, te.sum, symbol.dtype)


@compute(Mean)
def mean_over(symbol: Symbol[Mean], data: Tensor) -> View:
    axes = symbol.operator.axes(len(data.shape))
    count = constant(math.prod(int(data.shape[axis]) for axis in axes), symbol.dtype)
    total = reduced(data, axes, symbol.shape, te.sum, symbol.dtype)
    return inlined(symbol.shape, symbol.dtype, lambda *at: total(*at) / count)


@compute(Max, kind=Kind.REDUCTION)
def max_over(symbol: Symbol[Max], data: Tensor) -> Tensor:
    return reduced(data, symbol.operator.axes(len(data.shape)), symbol.shape, te.max, symbol.dtype)


def _by_vectors(data: Tensor, axes: Sequence[int]) -> bool:
    """Whether whole vectors can be read along the one axis that is reduced."""
    rank = len(data.shape)
    if not isinstance(data, View) or data.storage is None or list(axes) != [rank - 1] or rank < 2:
        return False
    return data.inner == rank - 1 and data.length % VECTOR == 0 and not data.dtype.startswith("float")


def reduced(data: Tensor, axes: Sequence[int], shape: tuple[int, ...], reducer: Any, dtype: str) -> View:
    """`data` reduced over `axes`; where `shape` has the data's rank they stay with length 1, else they are dropped.

    A reduction over all axes may give the shape (1,).
    """
    rank, stored, dtype = len(data.shape), dtype, ordered(dtype)
    if _by_vectors(data, axes) and stored in STORAGE_DTYPES:
        return reduced_rows(data, shape, reducer, dtype)
    loops = {axis: te.reduce_axis((0, int(data.shape[axis])), f"r{axis}") for axis in axes}
    kept = range(rank) if len(shape) == rank else [axis for axis in range(rank) if axis not in loops]

    def body(*at: Expression) -> Expression:
        places = dict(zip(kept, at, strict=False)) | {axis: loop.var for axis, loop in loops.items()}
        value = as_term(data(*(places[axis] for axis in range(rank))).astype(dtype))
        return reducer(value, axis=list(loops.values())) if loops else value

    near = data.inner if isinstance(data, View) else None
    inner = list(kept).index(near) if near is not None and near in kept and near not in loops else None
    total = stage(shape, body, "reduced", inner=inner)
    return inlined(shape, stored, lambda *at: total(*at).astype(stored), inner)
