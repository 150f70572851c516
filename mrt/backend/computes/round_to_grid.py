"""Rounding to a grid that is an input: what networks are tried on before they are quantized."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import broadcast, inlined
from mrt.backend.tir.expressions import Expression, Tensor, combined, constant
from mrt.symbol import Symbol
from mrt.symbol.operators.round_to_grid import RoundToGrid


@compute(RoundToGrid, kind=Kind.ELEMENTWISE, random_access=(1,))
def round_to_grid(symbol: Symbol[RoundToGrid], data: Tensor, grid: Tensor) -> View:
    """The definition in float32. The padding of channels in memory reads the grid of the last channel."""
    last = int(grid.shape[1]) - 1

    def element(*at: Expression) -> Expression:
        place = constant(0, "int32")
        if last:
            place = te.min(at[symbol.operator.axis].astype("int32"), constant(last, "int32"))
        inverse, least, greatest, step = (grid(constant(row, "int32"), place) for row in range(4))

        def rounded(x: Expression) -> Expression:
            return te.max(te.min(tirx.nearbyint(x * inverse), greatest), least) * step

        return combined(rounded, [broadcast(data, at, symbol.shape)])

    return inlined(symbol.shape, symbol.dtype, element)
