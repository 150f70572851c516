"""Division of integers cut towards 0, as TVM's `divide` and `mod` have it, of divisions that round down."""

from __future__ import annotations

from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod
from mrt.symbol.operators.scalar import PlusScalar
from mrt.symbol.operators.selection import MinimumScalar


def cut_quotient(node: TVMNode, data: Symbol, divisor: Symbol, suffix: str = "") -> Symbol:
    """floor(max(x, 0) / d) + floor((min(x, 0) + d - 1) / d), d of 1 or more; no step needs more bits than x and d."""
    above, below, _ = _halves(node, FloorDivide(), data, divisor, suffix)
    return node.apply(BroadcastAdd(), [above, below], suffix)


def cut_remainder(node: TVMNode, data: Symbol, divisor: Symbol, suffix: str = "") -> Symbol:
    """What `cut_quotient` leaves, which has the sign of x: max(x, 0) mod d + ((min(x, 0) + d - 1) mod d - (d - 1))."""
    above, below, most = _halves(node, FloorMod(), data, divisor, suffix)
    lowered = node.apply(BroadcastSub(), [below, most], _named("below_lowered", suffix))
    return node.apply(BroadcastAdd(), [above, lowered], suffix)


def _halves(
    node: TVMNode, operator: Operator, data: Symbol, divisor: Symbol, suffix: str
) -> tuple[Symbol, Symbol, Symbol]:
    """The operator of max(x, 0) and of min(x, 0) + d - 1 by d, and d - 1."""
    positive = node.apply(Relu(), [data], _named("positive", suffix))
    negative = node.apply(MinimumScalar(0.0), [data], _named("negative", suffix))
    most = node.apply(PlusScalar(-1.0), [divisor], _named("most", suffix))
    raised = node.apply(BroadcastAdd(), [negative, most], _named("raised", suffix))
    return (
        node.apply(operator, [positive, divisor], _named("above", suffix)),
        node.apply(operator, [raised, divisor], _named("below", suffix)),
        most,
    )


def _named(role: str, suffix: str) -> str:
    return f"{suffix}_{role}" if suffix else role
