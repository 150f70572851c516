"""Values that do not depend on the data: filled tensors, and the shapes of tensors."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.folding import check_size
from mrt.symbol import Array


@converter("zeros", "zeros_like")
def zeros(node: Node) -> Array:
    return np.zeros(_shape(node), node.result_dtype)


@converter("ones", "ones_like")
def ones(node: Node) -> Array:
    return np.ones(_shape(node), node.result_dtype)


@converter("full", "full_like")
def full(node: Node) -> Array:
    return np.full(_shape(node), node.known_number(1, "fill_value"), node.result_dtype)


def _shape(node: Node) -> tuple[int, ...]:
    """The shape of the result; GraphError where a constant of it is larger than any that a network has."""
    check_size(node, node.result_shape)
    return node.result_shape


@converter("shape_of")
def shape_of(node: Node) -> Array:
    return np.asarray(node.shape(0), dtype=np.int64)


@converter("shape_to_tensor", "tensor_to_shape")
def shape_as_tensor(node: Node) -> Array:
    return node.known(0, "shape")
