"""Comparisons, made of the sign of a difference, and logic on what they give: 1 where something holds, else 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mrt.frontend.shared.arithmetic import MULTIPLY, SUBTRACT, Arithmetic, combined, joined
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.selection import MAXIMUM
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.functions import Abs, Sign
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.scalar import MulScalar, RMinusScalar

_NEGATED: Callable[[], Operator] = partial(MulScalar, -1.0)
_NOT: Callable[[], Operator] = partial(RMinusScalar, 1.0)

COMPARISONS: dict[str, tuple[Callable[[], Operator], ...]] = {
    "equal": (Abs, _NOT),
    "not_equal": (Abs,),
    "greater": (Relu,),
    "lesser": (_NEGATED, Relu),
    "greater_equal": (_NEGATED, Relu, _NOT),
    "lesser_equal": (Relu, _NOT),
}
"""What makes 1 where a comparison holds and 0 elsewhere of the sign of the difference, which is -1, 0 or 1."""


def compared(node: ModelNode, difference: Symbol, comparison: str) -> Symbol:
    """1 where a difference is as a comparison asks, 0 elsewhere; in the dtype of the difference."""
    # The sign of an integer is the integer in [-1, 1] that is nearest to it.
    sign = Clip(a_min=-1.0, a_max=1.0) if difference.type.is_integer else Sign()
    result = node.apply(sign, [difference], "sign")
    *steps, last = COMPARISONS[comparison]
    for place, make in enumerate(steps):
        result = node.apply(make(), [result], f"step{place}")
    return node.apply(last(), [result])


def comparison(node: ModelNode, name: str) -> Symbol:
    """1 where the node's two inputs compare as named in COMPARISONS, 0 elsewhere."""
    return compared(node, combined(node, SUBTRACT, "difference"), name)


_LOGIC: dict[str, Arithmetic] = {"and": MULTIPLY, "or": MAXIMUM, "xor": SUBTRACT}


def logic(node: ModelNode, name: str) -> Symbol:
    """ "and", "or" or "xor" of the node's two inputs, or "not" of its one: 1 where it holds, else 0.

    In integers where all of them are that, else in float32.
    """
    indices = (0,) if name == "not" else (0, 1)
    in_floats = any(not node.is_known(index) and node.symbol(index).type.is_float for index in indices)
    operands = [_truth(node, index, in_floats) for index in indices]
    if name == "not":
        return node.apply(_NOT(), operands)
    result = joined(node, _LOGIC[name], operands[0], operands[1], "difference" if name == "xor" else "")
    return node.apply(Abs(), [result]) if name == "xor" else result


def _truth(node: ModelNode, index: int, in_floats: bool) -> Symbol:
    """An input as float32, or int32: those that comparisons gave are that already."""
    dtype = "float32" if in_floats else "int32"
    if node.is_known(index):
        kind = "truth" if in_floats else "truth_integer"
        return node.parameter_of(index, f"truth{index}", kind, lambda value: (value != 0).astype(dtype))
    value = node.symbol(index)
    if value.type.is_float if in_floats else value.dtype == "int32":
        return value
    return node.apply(Cast(dtype=dtype), [value], f"truth{index}")
