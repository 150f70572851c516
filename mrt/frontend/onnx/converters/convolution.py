"""Convolution of one, two or three spatial axes."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import read_windows
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shaping import bordered, unless_default
from mrt.symbol import Symbol
from mrt.symbol.operators.convolution import Convolution


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
    if not windows.is_symmetric:
        data = bordered(node, data, windows.begins, windows.ends, "pad")
    inputs = [data, weight]
    if node.has(2):
        inputs.append(node.symbol(2))
    operator = Convolution(
        kernel=windows.kernel,
        num_filter=weight.shape[0],
        stride=unless_default(windows.stride, 1),
        dilate=unless_default(windows.dilation, 1),
        pad=unless_default(windows.begins, 0) if windows.is_symmetric else (),
        num_group=node.integer("group", 1),
        no_bias=len(inputs) == 2,
    )
    return node.apply(operator, inputs)
