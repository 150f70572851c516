"""dot: batch_dot without leading axes."""

from __future__ import annotations

from mrt.backend.compute import compute
from mrt.backend.computes.linear import batch_dot
from mrt.backend.expressions import Tensor
from mrt.symbol import Symbol


@compute("dot")
def dot(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return batch_dot(symbol, lhs, rhs)
