"""Elementwise operators that every format has of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.symbol import Operator
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.scalar import MinusScalar, MulScalar, PlusScalar
from mrt.symbol.operators.selection import (
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    MaximumScalar,
    MinimumScalar,
)

OF_TWO_TENSORS: Mapping[type[Operator], str] = {
    ElemwiseAdd: "add",
    ElemwiseSub: "subtract",
    ElemwiseMul: "multiply",
    ElemwiseMaximum: "maximum",
    ElemwiseMinimum: "minimum",
    BroadcastAdd: "add",
    BroadcastSub: "subtract",
    BroadcastMul: "multiply",
    BroadcastMaximum: "maximum",
    BroadcastMinimum: "minimum",
}
"""What they compute, by NumPy's name."""
OF_TENSOR_AND_NUMBER: Mapping[type[Operator], str] = {
    PlusScalar: "add",
    MinusScalar: "subtract",
    MulScalar: "multiply",
    MaximumScalar: "maximum",
    MinimumScalar: "minimum",
}
"""What they compute, by NumPy's name; the number is the second operand."""
