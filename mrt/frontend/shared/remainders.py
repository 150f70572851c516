"""What is left of a division, and the whole part of its quotient."""

from __future__ import annotations

import numpy as np

from mrt.frontend.shared.arithmetic import DIVIDE, combined, number_for
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.functions import Floor, Trunc
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod
from mrt.symbol.operators.periodic import ModScalar


def remainder(node: ModelNode, truncates: bool) -> Symbol:
    """The node's first input modulo its second: of the divisor's sign, or truncated of the dividend's.

    Integers: see `_of_integers`. Floats, Case 1: one divisor for all elements. Case 2: other ones that broadcast,
    computed ones too, as what the whole multiple leaves. Raises UnsupportedOperatorError for a constant divisor that is
    0 or not finite.
    """
    if node.symbol(0).type.is_integer:
        return _of_integers(node, FloorMod(), truncates, "")
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
    """The node's first input by its second, rounded down or to 0; of integers see `_of_integers`."""
    if node.symbol(0).type.is_integer:
        return _of_integers(node, FloorDivide(), truncates, suffix)
    quotient = combined(node, DIVIDE, "quotient")
    return node.apply(Trunc() if truncates else Floor(), [quotient], suffix)


def _of_integers(node: ModelNode, operator: Operator, truncates: bool, suffix: str) -> Symbol:
    """A division of integers by constants of 1 or more, rounded down; UnsupportedOperatorError for any other."""
    known = node.known(1, "divisor")
    if truncates or known.min(initial=1) < 1:
        found = "one towards 0" if truncates else f"by {known.min()}"
        raise node.unsupported("a division of integers", found, "one that rounds down, by 1 or more")
    divisor = node.parameter_of(1, "divisor", "int32", lambda value: value.astype(np.int32))
    return node.apply(operator, [node.symbol(0), divisor], suffix)
