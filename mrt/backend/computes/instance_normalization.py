"""InstanceNorm and L2Normalization."""

from __future__ import annotations

import math

from tvm import te

from mrt.backend.computes.normalization import normalized_rows
from mrt.backend.computes.reduce import reduced
from mrt.backend.kernels.generic.rows import whole_rows
from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant
from mrt.symbol import Symbol
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization


def _kind(symbol: Symbol[InstanceNorm]) -> Kind:
    """A normalization where one axis follows the channels, as of groups that are reshaped to rows."""
    return Kind.NORMALIZATION if symbol.type.rank == 3 and symbol.shape[-1] > 1 else Kind.OTHER


@compute(InstanceNorm, kind=_kind)
def instance_norm(symbol: Symbol[InstanceNorm], data: View, gamma: Tensor, beta: Tensor) -> Tensor:
    """Two passes: the variance is that of the centred values."""
    dtype, axes = symbol.dtype, tuple(range(2, len(symbol.shape)))
    if _kind(symbol) is Kind.NORMALIZATION:
        rows = normalized_rows(symbol, whole_rows(data), constant(symbol.operator.eps, dtype))
        return inlined(
            symbol.shape, dtype, lambda *at: rows(*at) * gamma(at[1]).astype(dtype) + beta(at[1]).astype(dtype)
        )
    kept = _kept(symbol, axes)
    count = constant(math.prod(symbol.shape[2:]), dtype)
    total = reduced(data, axes, kept, te.sum, dtype)
    centred = stage(symbol.shape, lambda *at: data(*at) - total(*_along(at, axes)) / count, "centred")
    squares = inlined(symbol.shape, symbol.dtype, lambda *at: centred(*at) * centred(*at))
    variance = reduced(squares, axes, kept, te.sum, dtype)
    eps = constant(symbol.operator.eps, dtype)

    def element(*at: Expression) -> Expression:
        deviation = te.sqrt(variance(*_along(at, axes)) / count + eps)
        return centred(*at) / deviation * gamma(at[1]).astype(dtype) + beta(at[1]).astype(dtype)

    return stage(symbol.shape, element, "instance_norm")


@compute(L2Normalization)
def l2_normalization(symbol: Symbol[L2Normalization], data: Tensor) -> Tensor:
    operator, dtype = symbol.operator, symbol.dtype
    axes = operator.axes(len(symbol.shape))
    squares = inlined(symbol.shape, symbol.dtype, lambda *at: data(*at) * data(*at))
    length = reduced(squares, axes, _kept(symbol, axes), te.sum, dtype)
    eps = constant(operator.eps, dtype)
    return stage(symbol.shape, lambda *at: data(*at) / te.sqrt(length(*_along(at, axes)) + eps), "l2_normalization")


def _kept(symbol: Symbol, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else n for axis, n in enumerate(symbol.shape))


def _along(at: tuple[Expression, ...], axes: tuple[int, ...]) -> list[Expression]:
    return [0 if axis in axes else place for axis, place in enumerate(at)]
