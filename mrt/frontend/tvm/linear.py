"""Matrix products: matmul as FullyConnected where the right side is a constant matrix, else as dot or batch_dot."""

from __future__ import annotations

from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.matmul import product
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol


def matmul(node: ModelNode) -> Symbol:
    return product(node, _weight(node), transposed)


def _weight(node: ModelNode) -> Symbol | None:
    """A constant right side, which may have leading axes of size 1 that add none to the result, as FullyConnected's
    (outputs, inputs); None for any other.
    """
    lhs, rhs = node.shape(0), node.shape(1)
    if not node.is_known(1) or any(size != 1 for size in rhs[:-2]) or len(rhs) > max(len(lhs), 2):
        return None
    return node.parameter_of(
        1, "weight", "transposed", lambda b: b.reshape(b.shape[-2:]).T if b.ndim > 1 else b.reshape(1, -1)
    )
