"""What is left of a division, and the whole part of its quotient."""

from __future__ import annotations

import numpy as np

from mrt.frontend.shared.arithmetic import DIVIDE, combined, number_for
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.functions import Floor, Trunc
from mrt.symbol.operators.periodic import ModScalar


def remainder(node: ModelNode, truncates: bool) -> Symbol:
    """The node's first input, of floats, modulo its second: of the divisor's sign, or truncated of the dividend's.

    Case 1: one divisor for all elements. Case 2: other ones that broadcast, computed ones too, as what the whole
    multiple leaves. Raises UnsupportedOperatorError for a constant divisor that is 0 or not finite.
    """
    known = node.array(1)
    if known is not None and not (np.isfinite(known).all() and known.all()):
        raise node.unsupported("the divisor", known.reshape(-1)[:3].tolist(), "a finite one other than 0")
    divisor = number_for(node, 1, 0)
    if divisor is not None:
        return node.apply(ModScalar(divisor, truncates=truncates), [node.symbol(0)])
    whole = whole_quotient(node, truncates, "whole")
    multiple = node.apply(BroadcastMul(), [whole, node.symbol(1, "divisor")], "multiple")
    return node.apply(BroadcastSub(), [node.symbol(0), multiple])


def whole_quotient(node: ModelNode, truncates: bool, suffix: str = "") -> Symbol:
    """The node's first input, of floats, by its second, rounded down or to 0."""
    quotient = combined(node, DIVIDE, "quotient")
    return node.apply(Trunc() if truncates else Floor(), [quotient], suffix)
