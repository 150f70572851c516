"""Products with the reciprocal of a tensor, or of its root, as quotients."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.preparation.patterns.algebra import Algebra
from mrt.symbol import GraphBuilder, Operator, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.functions import PowerScalar, Reciprocal, Rsqrt, Sqrt


@dataclass(frozen=True)
class Quotient:
    """data / root(divisor); root: None for the divisor itself."""

    data: Symbol
    divisor: Symbol
    root: Operator | None


def find_quotient(symbol: Symbol, algebra: Algebra) -> Quotient | None:
    """The quotient that a product is, or None.

    1. X * rsqrt(D), X * reciprocal(D), X * D^-p: X / √D, X / D, X / D^p, where nothing else reads that inverse and X
       is no constant. The root of a tensor is resolved well by as few steps as its inverse is badly.
    """
    if symbol.operator.operation is not Operation.MULTIPLY or len(symbol.inputs) != 2:
        return None
    graph = algebra.graph
    for data, inverse in (symbol.inputs, symbol.inputs[::-1]):
        is_inverse = isinstance(inverse.operator, (Rsqrt, Reciprocal, PowerScalar)) and graph.value(data) is None
        if not is_inverse or len(graph.consumers[inverse]) != 1 or inverse in graph.outputs:
            continue
        match inverse.operator:
            case Rsqrt():
                return Quotient(data, inverse.inputs[0], Sqrt())
            case Reciprocal():
                return Quotient(data, inverse.inputs[0], None)
            case PowerScalar(scalar=scalar) if scalar < 0:
                return Quotient(data, inverse.inputs[0], None if scalar == -1 else PowerScalar(-scalar))
    return None


def make_quotient(found: Quotient, data: Symbol, divisor: Symbol, name: str, builder: GraphBuilder) -> Symbol:
    """The quotient under `name`."""
    if found.root is not None:
        divisor = builder.apply(found.root, [divisor], f"{name}_divisor")
    return builder.apply(BroadcastDiv(), [data, divisor], name)
