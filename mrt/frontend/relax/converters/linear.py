"""Matrix products, sums of products by an equation, triangles of matrices."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.einsum import summed
from mrt.frontend.shared.triangles import triangle
from mrt.frontend.tvm.linear import matmul
from mrt.symbol import Symbol

converter("matmul")(matmul)


@converter("einsum")
def einsum(node: Node) -> Symbol:
    return summed(node, node.text("subscripts"), node.symbols(0))


@converter("tril", "triu")
def matrix_triangle(node: Node) -> Symbol:
    return triangle(node, node.known_integers(1, "k")[0], node.kind == "triu")
