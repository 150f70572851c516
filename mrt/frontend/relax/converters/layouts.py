"""Layouts such as NHWC, read from attributes, and the transposes between them."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.frontend.node import ModelNode
from mrt.frontend.relax.layout import through
from mrt.frontend.relax.node import Node
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Transpose


def transposed(node: ModelNode, data: Symbol, axes: Sequence[int], suffix: str = "") -> Symbol:
    """`data` with its axes in another order. A transpose of a transpose is made one, or none if it undoes it."""
    data, order = through(data, axes)
    if order == tuple(range(data.type.rank)):
        return data
    return node.apply(Transpose(axes=order), [data], suffix)


def permutation(node: Node, attribute: str, layout: str) -> tuple[int, ...]:
    """The axes that bring a tensor from the layout that an attribute names, such as "NHWC", to `layout`.

    Raises UnsupportedOperatorError where the two do not have the same axes, as in blocked layouts.
    """
    found = node.text(attribute)
    if sorted(found) != sorted(layout):
        raise node.unsupported(f"attribute {attribute}", found, f"an order of the axes {layout}")
    return tuple(found.index(letter) for letter in layout)
