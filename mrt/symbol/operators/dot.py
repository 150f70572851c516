"""The product of two matrices."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.symbol.operator import operator
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.types import TensorType, arithmetic_dtype


@operator("dot")
class Dot(BatchDot):
    """lhs rhs of two matrices: (M, K) times (K, N) gives (M, N). MXNet's dot for rank 2, the only one covered.

    transpose_a, transpose_b: lhs, rhs is transposed first. Integers give int32.
    """

    family = "matmul"

    transpose_a: bool = False
    transpose_b: bool = False

    ignored = frozenset({"forward_stype"})

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        if lhs.rank != 2 or rhs.rank != 2:
            raise GraphError(f"operands are {lhs} and {rhs}; rank 2 is needed, or batch_dot")
        rows, inner = lhs.shape[::-1] if self.transpose_a else lhs.shape
        other, columns = rhs.shape[::-1] if self.transpose_b else rhs.shape
        if inner != other:
            raise GraphError(f"operands are {lhs} and {rhs}; sums over {inner} and {other} elements do not fit")
        return TensorType((rows, columns), arithmetic_dtype(lhs, rhs))

    def batch_obstacle(self, lhs: TensorType, rhs: TensorType) -> str:
        return "axis 0 of one operand is summed over or holds columns"
