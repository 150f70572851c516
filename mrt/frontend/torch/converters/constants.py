"""Values that do not depend on the data."""

from __future__ import annotations

import numpy as np
from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter


@converter("full.default", "full_like.default", "new_full.default")
def full(node: Node) -> Expression:
    return relax.op.full(node.made(*node.shape), constant(node.arguments["fill_value"], node.dtype), node.dtype)


@converter("scalar_tensor.default")
def scalar_tensor(node: Node) -> Expression:
    return constant(node.arguments["s"], node.dtype)


@converter("arange.start_step")
def arange(node: Node) -> Expression:
    """The first `length` of start, start + step, …, as many as PyTorch makes."""
    places = np.arange(*node.made(*node.shape))
    return constant(node.arguments["start"] + node.arguments["step"] * places, node.dtype)
