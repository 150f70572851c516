"""Powers with a constant exponent, by the operator that fits it."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.functions import PowerScalar, Reciprocal, Rsqrt, Sqrt, Square

_POWERS: dict[float, Callable[[], Operator]] = {2.0: Square, 0.5: Sqrt, -0.5: Rsqrt, -1.0: Reciprocal}
"""The powers that have an operator of their own."""


def powered(node: ModelNode) -> Symbol:
    """The node's first input to the power of its second: a constant number, the same for all elements."""
    exponent = node.known(1, "exponent")
    data = node.symbol(0)
    if exponent.size != 1 or exponent.ndim > data.type.rank:
        raise node.unsupported("input exponent", f"of shape {exponent.shape} on {data.type}", "one number")
    value = float(exponent.reshape(()))
    if value == 1.0:
        return data
    make = _POWERS.get(value)
    return node.apply(PowerScalar(value) if make is None else make(), [data])
