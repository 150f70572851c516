"""The first elements in their order: topk, sort and argsort."""

from __future__ import annotations

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, converter, shape_of


@converter("topk.default")
def top_k(node: Node) -> tuple[Expression, Expression]:
    """Always sorted. PyTorch leaves the order of equal elements open: here the lower place is first."""
    return _ordered(node, node.integer("k"), node.flag("largest"))


@converter("sort.default", "sort.stable")
def sort(node: Node) -> tuple[Expression, Expression]:
    return _ordered(node, 0, node.flag("descending"))


@converter("argsort.default", "argsort.stable")
def argsort(node: Node) -> Expression:
    return _ordered(node, 0, node.flag("descending"))[1]


def _ordered(node: Node, count: int, largest: bool) -> tuple[Expression, Expression]:
    data, axis = node.tensor("self"), node.integer("dim")
    shape = shape_of(data)
    if not shape:
        raise node.unsupported("the data", "one number", "rank 1 or more")
    count = count or shape[axis % len(shape)]
    values, places = (relax.op.topk(data, count, axis, kind, largest, "int64") for kind in ("values", "indices"))
    return node.emit(values), node.emit(places)
