"""Matrix products: FULLY_CONNECTED, BATCH_MATMUL, and CUMSUM, which is one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.mapping import mapped
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.tflite.activation import activated
from mrt.frontend.tflite.node import Node, converter
from mrt.frontend.tvm.linear import matmul
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import FullyConnected


@converter("FULLY_CONNECTED")
def fully_connected(node: Node) -> Symbol:
    """Rows of the data times the weight (outputs, inputs), transposed, plus a bias.

    Rows are as long as the weight reads, whatever the last axis is; with KeepNumDims the other axes stay.
    Case 1: the weight is a constant. Case 2: it is computed, and the product is a dot.
    """
    options, data = node.options("FullyConnectedOptions"), node.symbol(0, "data")
    if options.integer("WeightsFormat"):
        raise node.unsupported("WeightsFormat", options.integer("WeightsFormat"), "0, plain rows,")
    shape = node.shape(1)
    if len(shape) != 2 or not shape[1] or not data.type.rank or data.type.size % shape[1]:
        raise GraphError(f"{node.label}: data is {data.type}, weight of shape {shape}; (outputs, inputs) is needed")
    outputs, inputs = shape
    rows = data.type.size // inputs
    kept: tuple[int, ...] = (rows,)
    if options.flag("KeepNumDims"):
        if data.shape[-1] != inputs:
            raise GraphError(f"{node.label}: data is {data.type}, the weight reads {inputs}")
        kept = data.shape[:-1]
    return activated(node, options, partial(_product, node, data, (*kept, outputs)))


def _product(node: Node, data: Symbol, shape: tuple[int, ...], suffix: str) -> Symbol:
    """The product and the bias, in this shape."""
    outputs, inputs = node.shape(1)
    bias = [node.symbol(2, "bias")] if node.has(2) else []
    if node.is_known(1):
        flat = len(shape) == 2
        rows = reshaped(node, data, (*shape[:-1], inputs), "rows")
        operator = FullyConnected(num_hidden=outputs, no_bias=not bias, flatten=flat)
        return node.apply(operator, [rows, node.symbol(1, "weight"), *bias], suffix)
    rows = reshaped(node, data, (data.type.size // inputs, inputs), "rows")
    lead = f"{suffix}_" if suffix else ""
    last = f"{lead}unbiased" if bias else suffix
    is_flat = (rows.shape[0], outputs) == shape
    product = node.apply(Dot(transpose_b=True), [rows, node.symbol(1)], last if is_flat else f"{lead}product")
    product = reshaped(node, product, shape, last)
    return node.apply(BroadcastAdd(), [product, *bias], suffix) if bias else product


@converter("BATCH_MATMUL")
def batch_matmul(node: Node) -> Symbol:
    """NumPy's matmul, either side transposed before where the options say so."""
    options = node.options("BatchMatMulOptions")
    sides = tuple(
        _adjoint(node, index, role) if options.flag(adjoint) else node.input(index)
        for index, (role, adjoint) in enumerate((("lhs", "AdjX"), ("rhs", "AdjY")))
    )
    return matmul(replace(node, inputs=sides))


def _adjoint(node: Node, index: int, role: str) -> Value:
    """An input with its last two axes exchanged."""
    value, rank = node.input(index), len(node.shape(index))
    if rank < 2:
        raise GraphError(f"{node.label}: input {index} has shape {node.shape(index)}; rank 2 or more is needed")
    axes = (*range(rank - 2), rank - 1, rank - 2)
    if isinstance(value, np.ndarray):
        return value.transpose(axes)
    return transposed(node, node.symbol(index), axes, f"{role}_adjoint")


@converter("CUMSUM")
def cumulated(node: Node) -> Symbol:
    """The sums of the elements up to each along an axis, without itself if Exclusive, from the end if Reverse."""
    options, data = node.options("CumsumOptions"), node.symbol(0)
    axis = node.known_axis(1, data.type.rank)
    length = data.shape[axis]
    node.made((length, length))
    triangle = np.tri(length, k=-1 if options.flag("Exclusive") else 0)
    return mapped(node, data, axis, triangle[::-1, ::-1] if options.flag("Reverse") else triangle)
