"""Patterns that formats spell out of arithmetic become the operators that they are, whoever spelled them."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.preparation.patterns.algebra import Algebra
from mrt.preparation.patterns.gates import Gate, find_gate
from mrt.preparation.patterns.normalization import Normalization, find_normalization
from mrt.preparation.patterns.operators import make_normalization
from mrt.preparation.patterns.quotients import Quotient, find_quotient, make_quotient
from mrt.preparation.patterns.softmax import Shares, find_softmax, softmax_of
from mrt.symbol import Graph, GraphBuilder, Pass, PassResult, Refusal, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operation import Operation
from mrt.symbol.operators.functions import HardSwish, Log

__all__ = ["SpelledOut"]

_ROOTS = frozenset({Operation.ADD, Operation.SUBTRACT, Operation.MULTIPLY, Operation.DIVIDE})
_Found = Normalization | Shares | Quotient | Gate


@dataclass(frozen=True)
class SpelledOut(Pass):
    """Replaces arithmetic that spells an operator out by that operator; what is read elsewhere too stays beside it.

    kept: names of symbols that must stay, such as those before which the graph will be cut.

    1. Layer, instance, group, RMS and L2 normalisation: `find_normalization`.
    2. Softmax and its logarithm: `find_softmax`.
    3. A product with a reciprocal or reciprocal square root of another tensor: a quotient, `find_quotient`.
    4. Hard swish, which integers compute: `find_gate`.

    Other activations that are functions of one tensor need no pattern: they become one table, however they are written
    (CollapseToTable). Masked scores neither: the softmax that reads them tells them (FiniteMasks).
    """

    kept: frozenset[str] = frozenset()

    def run(self, graph: Graph) -> PassResult:
        found, refusals = self._find(graph)
        new: dict[Symbol, Symbol] = {}

        def step(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            new.update(zip(symbol.inputs, inputs, strict=True))
            made = found.get(symbol)
            return None if made is None else _made(made, symbol, new, builder)

        result = rewrite_graph(graph, step) if found else graph
        left = frozenset(result.by_name)
        return PassResult(result, tuple(refusal for refusal in refusals if refusal.symbol in left))

    def _find(self, graph: Graph) -> tuple[dict[Symbol, _Found], list[Refusal]]:
        algebra = Algebra(graph)
        found: dict[Symbol, _Found] = {}
        refusals: list[Refusal] = []
        refused: dict[Symbol, str] = {}
        for symbol in graph.operators:
            if not symbol.type.is_float or not (
                symbol.operator.operation in _ROOTS or isinstance(symbol.operator, Log)
            ):
                continue
            for find in (find_normalization, find_softmax, find_quotient, find_gate):
                made = find(symbol, algebra)
                if isinstance(made, str):
                    # What only scales or shifts a refused tensor would give its reason once more.
                    if all(refused.get(source) != made for source in symbol.inputs):
                        refusals.append(Refusal(symbol.name, made))
                    refused[symbol] = made
                elif made is not None:
                    inside = self._kept_inside(graph, symbol, made)
                    if inside:
                        refusals.append(Refusal(symbol.name, f"prepare.split names {inside}, which it is made of"))
                    else:
                        found[symbol] = made
                    break
        return found, refusals

    def _kept_inside(self, graph: Graph, symbol: Symbol, made: _Found) -> str:
        """The first symbol between what a pattern reads and its end that must stay; "" where there is none."""
        ends = {made.data, made.divisor} if isinstance(made, Quotient) else {made.data}
        pending, seen = [symbol], set[Symbol]()
        while pending if self.kept else ():
            for source in pending.pop().inputs:
                if source in ends or source in seen or graph.value(source) is not None:
                    continue
                if source.name in self.kept:
                    return source.name
                seen.add(source)
                pending.append(source)
        return ""


def _made(found: _Found, symbol: Symbol, new: dict[Symbol, Symbol], builder: GraphBuilder) -> Symbol:
    if isinstance(found, Normalization):
        return make_normalization(found, new[found.data], symbol.name, builder)
    if isinstance(found, Shares):
        return builder.apply(softmax_of(found), [new[found.data]], symbol.name, symbol.origin)
    if isinstance(found, Gate):
        return builder.apply(HardSwish(), [new[found.data]], symbol.name, symbol.origin)
    return make_quotient(found, new[found.data], new[found.divisor], symbol.name, builder)
