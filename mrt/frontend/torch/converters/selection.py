"""Choosing among values, and elements by their indices."""

from __future__ import annotations

import numpy as np
from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of


@converter("where.self")
def where(node: Node) -> Expression:
    return relax.op.where(
        node.operand("condition", "bool"), node.operand("self", node.dtype), node.operand("other", node.dtype)
    )


@converter("embedding.default")
def embedding(node: Node) -> Expression:
    return relax.op.take(node.tensor("weight"), node.tensor("indices"), 0)


@converter("one_hot.default")
def one_hot(node: Node) -> Expression:
    """1 at the place that an index names along a new last axis, 0 elsewhere."""
    indices = node.emit(relax.op.expand_dims(node.operand("self", "int64"), len(node.shape) - 1))
    places = constant(np.arange(*node.made(node.shape[-1])), "int64")
    return node.cast(node.emit(relax.op.equal(indices, places)), node.dtype)


@converter("index_select.default")
def index_select(node: Node) -> Expression:
    return _elements(node, node.integer("dim"), node.tensor("index"), node.depends("index"))


@converter("index.Tensor")
def index(node: Node) -> Expression:
    """Elements along one axis; whole axes are None."""
    given = [(axis, item) for axis, item in enumerate(node.arguments["indices"]) if item is not None]
    if len(given) != 1 or not str(given[0][1].meta["val"].dtype).startswith("torch.int"):
        raise node.unsupported("argument indices", f"{len(given)} tensors or one of truth values", "one of integers")
    axis, item = given[0]
    return _elements(node, axis, node.importer.env[item], not node.is_known(item))


def _elements(node: Node, axis: int, indices: Expression, computed: bool) -> Expression:
    """Constant indices may count from the end; computed ones count from the front."""
    data = node.tensor("self")
    return relax.op.take(data, indices, axis % len(shape_of(data)), mode="fast" if computed else "wrap")
