"""Values that do not depend on the data: filled tensors, and the shapes of tensors."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.node import Node, converter
from mrt.symbol import Array


@converter("zeros", "zeros_like")
def zeros(node: Node) -> Array:
    return np.zeros(node.result_shape, node.result_dtype)


@converter("ones", "ones_like")
def ones(node: Node) -> Array:
    return np.ones(node.result_shape, node.result_dtype)


@converter("full", "full_like")
def full(node: Node) -> Array:
    return np.full(node.result_shape, node.known_number(1, "fill_value"), node.result_dtype)


@converter("shape_of")
def shape_of(node: Node) -> Array:
    return np.asarray(node.shape(0), dtype=np.int64)


@converter("shape_to_tensor", "tensor_to_shape")
def shape_as_tensor(node: Node) -> Array:
    return node.known(0, "shape")
