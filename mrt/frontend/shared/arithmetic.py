"""Addition, subtraction, multiplication and division, each in the form that fits its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RDivScalar, RMinusScalar


@dataclass(frozen=True)
class Arithmetic:
    """How a binary operator is written: on equal shapes, broadcasting, and with a number on either side."""

    elementwise: Callable[[], Operator] | None
    broadcast: Callable[[], Operator]
    number_right: Callable[[float], Operator]
    number_left: Callable[[float], Operator]


ADD = Arithmetic(ElemwiseAdd, BroadcastAdd, PlusScalar, PlusScalar)
SUBTRACT = Arithmetic(ElemwiseSub, BroadcastSub, MinusScalar, RMinusScalar)
MULTIPLY = Arithmetic(ElemwiseMul, BroadcastMul, MulScalar, MulScalar)
DIVIDE = Arithmetic(None, BroadcastDiv, DivScalar, RDivScalar)


def combined(node: ModelNode, forms: Arithmetic, suffix: str = "") -> Symbol:
    """The node's two inputs combined.

    Case 1: a constant of one element becomes a scalar operator, unless it adds axes. Case 2: two symbols of equal
    shape become an elementwise operator. Case 3: all else broadcasts. Integers that meet floats are cast: formats have
    truth values and places where the graph, as MXNet, has floats.
    """
    for constant, data, make in ((1, 0, forms.number_right), (0, 1, forms.number_left)):
        number = number_for(node, constant, data)
        if number is not None:
            return node.apply(make(number), [node.symbol(data)], suffix)
    lhs, rhs = node.symbol(0, "lhs"), node.symbol(1, "rhs")
    if lhs.type.is_float != rhs.type.is_float:
        lhs, rhs = (_as_float(node, symbol, side) for symbol, side in ((lhs, "lhs"), (rhs, "rhs")))
    return joined(node, forms, lhs, rhs, suffix)


def joined(node: ModelNode, forms: Arithmetic, lhs: Symbol, rhs: Symbol, suffix: str = "") -> Symbol:
    """What the node's two inputs became, combined: elementwise where both depend on the data and have one shape.

    Integers of two dtypes meet as int64.
    """
    lhs, rhs = of_one_dtype(node, [lhs, rhs])
    both_computed = not node.is_known(0) and not node.is_known(1)
    if forms.elementwise is not None and both_computed and lhs.shape == rhs.shape:
        return node.apply(forms.elementwise(), [lhs, rhs], suffix)
    return node.apply(forms.broadcast(), [lhs, rhs], suffix)


def of_one_dtype(node: ModelNode, operands: Sequence[Symbol]) -> list[Symbol]:
    """Operands as they are, or as int64 where they are integers of several dtypes, as formats and the graph differ in
    what comparisons and places give."""
    if len({operand.dtype for operand in operands}) == 1 or not all(operand.type.is_integer for operand in operands):
        return list(operands)
    return [
        operand if operand.dtype == "int64" else node.apply(Cast(dtype="int64"), [operand], f"operand{place}_int64")
        for place, operand in enumerate(operands)
    ]


def _as_float(node: ModelNode, symbol: Symbol, side: str) -> Symbol:
    return symbol if symbol.type.is_float else node.apply(Cast(dtype="float32"), [symbol], f"{side}_float")


def number_for(node: ModelNode, constant: int, data: int) -> float | None:
    """The input `constant` as a number, where it is known, the input `data` is not, and their result is shaped as data.

    None where any of that fails.
    """
    value, other = node.array(constant), node.input(data)
    if value is None or not isinstance(other, Symbol) or value.size != 1 or value.ndim > other.type.rank:
        return None
    return float(value.reshape(()))
