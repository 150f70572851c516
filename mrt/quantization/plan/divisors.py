"""The tensors that divisions read, which are resolved finer than others."""

from __future__ import annotations

from mrt.symbol import Graph, Symbol
from mrt.symbol.operation import Operation


def divided_tensors(graph: Graph) -> frozenset[str]:
    """The names of the tensors that nothing but divisions of tensors read.

    1. A tensor all of whose readers divide it or by it, or are divisors' own (rule 2).
    2. A divisor's own: what operators that are no layers or products of matrices make a divisor of, and nothing else
       reads.

    A relative error of the divisor is one of the quotient, and the least divisors, which give the largest quotients,
    are few of the steps that hold the largest. No layer reads any of them: their products keep their width.
    """
    found: set[Symbol] = set()
    leading: set[Symbol] = set()
    for symbol in reversed(graph.operators):
        readers = graph.consumers[symbol]
        if symbol in graph.outputs or not readers:
            continue
        if all(_divides(graph, reader) or reader in leading for reader in readers):
            found.add(symbol)
            is_own = all(reader in leading or reader.inputs[0] is not symbol for reader in readers)
            if is_own and not _multiplies_tensors(symbol):
                leading.add(symbol)
    return frozenset(symbol.name for symbol in found)


def _multiplies_tensors(symbol: Symbol) -> bool:
    """Whether it is a layer or a product of matrices, which takes its operands as narrow as they are."""
    types = [source.type for source in symbol.inputs]
    operator = symbol.operator
    return operator.data_channel_axis(types[0].rank) is not None or operator.summed_products(*types) > 0


def _divides(graph: Graph, reader: Symbol) -> bool:
    """Whether a symbol is the quotient of two computed tensors."""
    is_quotient = reader.operator.operation is Operation.DIVIDE and len(reader.inputs) == 2
    return is_quotient and all(graph.value(source) is None for source in reader.inputs)
