"""Values that do not depend on the data are computed while reading, by the graph that a converter makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mrt.frontend.shared import refusals
from mrt.frontend.shared.node import ModelNode, Value, ValueNode, ValueScope
from mrt.symbol import Array, Symbol

_Node = TypeVar("_Node", bound=ValueNode)

MOST_ELEMENTS = 2**26
"""The largest array that is computed: a few numbers in a model may ask for any amount of memory."""


def folded(node: _Node, convert: Callable[[_Node], Value]) -> Value:
    """The value of a node none of whose inputs depends on the data.

    Raises GraphError where it is larger than any constant of a network.
    """
    scratch = ValueScope(())
    return _evaluated(node, convert(replace(node, scope=scratch)), scratch)


def _evaluated(node: ModelNode, value: Value, scratch: ValueScope) -> Value:
    if isinstance(value, tuple):
        return tuple(_evaluated(node, item, scratch) for item in value)
    if not isinstance(value, Symbol):
        return value
    graph = scratch.builder.graph([value])
    for symbol in graph.operators:
        check_size(node, symbol.shape)
    result: Array = graph.evaluate({})[0]
    return result


def check_size(node: ModelNode, shape: tuple[int, ...]) -> None:
    """GraphError where a constant of this shape is larger than any that a network has."""
    refusals.check_size(node.label, shape, MOST_ELEMENTS)
