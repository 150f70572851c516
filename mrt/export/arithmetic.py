"""Elementwise operators that every format has of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.symbol import Operator
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.scalar import MinusScalar, MulScalar, PlusScalar, WithNumber
from mrt.symbol.operators.selection import (
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    MaximumScalar,
    MinimumScalar,
)

OF_TWO_TENSORS: Sequence[type[Operator]] = (
    *(ElemwiseAdd, ElemwiseSub, ElemwiseMul, ElemwiseMaximum, ElemwiseMinimum),
    *(BroadcastAdd, BroadcastSub, BroadcastMul, BroadcastMaximum, BroadcastMinimum),
)
OF_TENSOR_AND_NUMBER: Sequence[type[WithNumber]] = (PlusScalar, MinusScalar, MulScalar, MaximumScalar, MinimumScalar)
"""The number is the second operand."""


def numpy_name(operator: Operator) -> str:
    """What such an operator computes, by NumPy's name."""
    if operator.operation is None:
        raise GraphError(f"{operator.op} is no arithmetic of two operands")
    return operator.operation.value
