"""Matrix products."""

from __future__ import annotations

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter


@converter("matmul.default")
def matmul(node: Node) -> Expression:
    return relax.op.matmul(node.tensor("self"), node.tensor("other"))


@converter("mm.default", "bmm.default")
def matrix_product(node: Node) -> Expression:
    return relax.op.matmul(node.tensor("self"), node.tensor("mat2"))


@converter("linear.default")
def linear(node: Node) -> Expression:
    """x W^T + b."""
    weight = node.emit(relax.op.permute_dims(node.tensor("weight")), "weight")
    product = node.emit(relax.op.matmul(node.tensor("input"), weight))
    return relax.op.add(product, node.tensor("bias")) if node.has("bias") else product


@converter("addmm.default", "baddbmm.default")
def product_and_sum(node: Node) -> Expression:
    """beta x + alpha A B."""
    first, second = ("mat1", "mat2") if node.operator == "addmm.default" else ("batch1", "batch2")
    product = node.emit(relax.op.matmul(node.tensor(first), node.tensor(second)))
    added = node.tensor("self")
    if node.number("alpha") != 1:
        product = node.emit(relax.op.multiply(product, constant(node.number("alpha"))))
    if node.number("beta") == 0:
        return product
    if node.number("beta") != 1:
        added = node.emit(relax.op.multiply(added, constant(node.number("beta"))))
    return relax.op.add(product, added)
