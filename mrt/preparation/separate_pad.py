"""Writes the padding of a convolution as a Pad of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mrt.preparation.constants import feeds_only_one
from mrt.symbol import Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad


def _padded_convolutions(graph: Graph) -> str:
    for symbol in graph.operators:
        if isinstance(symbol.operator, Convolution) and any(symbol.operator.pad):
            return f"{symbol.name} ({symbol.op})"
    return ""


@dataclass(frozen=True)
class SeparatePad(RewritePass):
    """Convolutions read their input as it is; pooling keeps its own pad.

    1. Convolution with a pad: Pad with constant 0, then the convolution without.
    2. Pad with constant 0 of a Pad with constant 0 that nothing else reads, also one made by rule 1: one Pad.
    """

    ensures = (Property("no convolution pads", _padded_convolutions),)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        joins = feeds_only_one(graph, symbol.inputs[0])
        if isinstance(operator, Pad) and _is_zero_pad(operator) and joins and _is_zero_pad(inputs[0].operator):
            return _padded(inputs[0], operator.pad_width, joins, symbol.name, builder)
        if not isinstance(operator, Convolution) or not any(operator.pad):
            return None
        width = (0, 0, 0, 0, *(n for pad in operator.pad for n in (pad, pad)))
        data = _padded(inputs[0], width, joins, f"{symbol.name}_pad", builder)
        return builder.apply(replace(operator, pad=()), (data, *inputs[1:]), symbol.name)


def _padded(data: Symbol, width: tuple[int, ...], joins: bool, name: str, builder: GraphBuilder) -> Symbol:
    """`data` with zeros around it; `joins`: whether a Pad that `data` already is may be widened instead."""
    if joins and isinstance(data.operator, Pad) and _is_zero_pad(data.operator):
        width = tuple(a + b for a, b in zip(data.operator.pad_width, width, strict=True))
        data = data.inputs[0]
    return builder.apply(Pad(pad_width=width), (data,), name)


def _is_zero_pad(operator: object) -> bool:
    return isinstance(operator, Pad) and operator.is_of_zeros
