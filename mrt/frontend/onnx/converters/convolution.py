"""Convolution of one, two or three spatial axes."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import read_windows
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.windows import convolved
from mrt.symbol import Symbol


@converter("Conv")
def convolution(node: Node) -> Symbol:
    """Padding that is equal on both sides stays with the convolution, any other becomes a Pad before it."""
    data, weight = node.symbol(0), node.symbol(1)
    if data.type.rank < 3 or weight.type.rank != data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}, weight {weight.type}; equal ranks of 3 to 5 are needed")
    kernel = weight.shape[2:]
    stated = node.integers("kernel_shape")
    if stated is not None and stated != kernel:
        raise GraphError(f"{node.label}: attribute kernel_shape is {stated}, but the weight is {weight.type}")
    windows = read_windows(node, data.shape[2:], kernel)
    inputs = [data, weight, node.symbol(2)] if node.has(2) else [data, weight]
    return convolved(node, inputs, windows, node.integer("group", 1))
