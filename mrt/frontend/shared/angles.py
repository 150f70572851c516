"""The angle of a point in the plane, elsewhere called atan2."""

from __future__ import annotations

import math

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import broadcast, broadcast_shape
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastDiv, BroadcastSub
from mrt.symbol.operators.functions import Abs, Sign
from mrt.symbol.operators.hyperbolic import Arctan
from mrt.symbol.operators.scalar import MulScalar, RMinusScalar
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum, MaximumScalar, Where

_NO_LENGTH = 1e-30
"""What 0 is divided by at the origin."""


def angle(node: ModelNode) -> Symbol:
    """The angle in [-pi, pi] of the points whose y is the node's first input and whose x is its second.

    t = atan(min(|x|, |y|) / max(|x|, |y|)) lies in [0, pi / 4]. It is pi / 2 - t where |y| > |x|, then pi - t where
    x < 0, then -t where y < 0. The angle of the origin is 0.
    """
    shape = broadcast_shape(node, node.shape(0), node.shape(1))
    y, x = (broadcast(node, node.symbol(index, name), shape, f"whole_{name}") for index, name in enumerate("yx"))
    rise, run = node.apply(Abs(), [y], "rise"), node.apply(Abs(), [x], "run")
    least = node.apply(BroadcastMinimum(), [rise, run], "least")
    most = node.apply(MaximumScalar(_NO_LENGTH), [node.apply(BroadcastMaximum(), [rise, run], "larger")], "most")
    found = node.apply(Arctan(), [node.apply(BroadcastDiv(), [least, most], "slope")], "octant")
    difference = node.apply(BroadcastSub(), [rise, run], "difference")
    found = _mirrored(node, _positive(node, difference, "steep"), math.pi / 2, found, "quadrant")
    found = _mirrored(node, _positive(node, _negated(node, x, "x"), "left"), math.pi, found, "half")
    below = _positive(node, _negated(node, y, "y"), "below")
    return node.apply(Where(), [below, _negated(node, found, "half"), found])


def _mirrored(node: ModelNode, where: Symbol, total: float, data: Symbol, suffix: str) -> Symbol:
    """total - x where it holds, else x."""
    return node.apply(Where(), [where, node.apply(RMinusScalar(total), [data], f"{suffix}_other"), data], suffix)


def _negated(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
    return node.apply(MulScalar(-1.0), [data], f"{suffix}_negated")


def _positive(node: ModelNode, data: Symbol, suffix: str) -> Symbol:
    """1 where the data is above 0, else 0."""
    return node.apply(Relu(), [node.apply(Sign(), [data], f"{suffix}_sign")], suffix)
