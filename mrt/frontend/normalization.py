"""Layer normalization over several axes, which the operator has over one."""

from __future__ import annotations

import math

from mrt.frontend.node import ModelNode
from mrt.frontend.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.normalization import LayerNorm


def layer_normalized(node: ModelNode, data: Symbol, axis: int, gamma: Symbol, beta: Symbol, eps: float) -> Symbol:
    """`data` normalized over all axes from `axis` on; several of them are made one and taken apart again.

    gamma and beta are vectors with an entry for each normalized element.
    """
    merged = reshaped(node, data, (*data.shape[:axis], math.prod(data.shape[axis:])), "merged")
    operator = LayerNorm(axis=-1, eps=eps)
    normalized = node.apply(operator, [merged, gamma, beta], "normalized" if merged is not data else "")
    return reshaped(node, normalized, data.shape)
