"""Collapses elementwise operators that together are a function of one tensor into one, which becomes a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from mrt.symbol import Graph, GraphBuilder, Operator, Pass, PassResult, Refusal, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operation import Operation
from mrt.symbol.operator import EVERYTHING
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.functions import Square
from mrt.symbol.operators.region import MAX_OPERATORS, ElementwiseRegion, Expression
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RDivScalar, RMinusScalar

_OF_TWO_TENSORS: Mapping[Operation | None, Callable[[], Operator]] = {
    Operation.ADD: ElemwiseAdd,
    Operation.SUBTRACT: ElemwiseSub,
    Operation.MULTIPLY: ElemwiseMul,
    Operation.DIVIDE: BroadcastDiv,
}
_WITH_NUMBER: Mapping[Operation | None, tuple[Callable[[float], Operator], Callable[[float], Operator]]] = {
    Operation.ADD: (PlusScalar, PlusScalar),
    Operation.SUBTRACT: (MinusScalar, RMinusScalar),
    Operation.MULTIPLY: (MulScalar, MulScalar),
    Operation.DIVIDE: (DivScalar, RDivScalar),
}
"""The operators with the number on the right, and with the number on the left."""


@dataclass(frozen=True)
class CollapseToTable(Pass):
    """Replaces a region of elementwise operators by one `elementwise_region`, which holds it as an expression.

    1. A region is what lies between one tensor and one output of elementwise operators on float tensors of one shape:
       functions of one argument, arithmetic with a number or a constant of one element, and sums, differences,
       products and quotients of tensors that are functions of that same tensor.
    2. No value inside is read outside or is an output of the graph. Constants of several elements end a region.
    3. It begins at the farthest tensor for which that holds, and for which it has at most MAX_OPERATORS operators,
       equal ones counted as often as they are written. A relu or clip at its beginning stays outside: it
       narrows the range over which the table is built.
    4. It has two operators or more, and one at least that integers do not compute as it is: a function such as tanh,
       or a product or quotient of two of its tensors.
    """

    def run(self, graph: Graph) -> PassResult:
        regions, refusals = _find(graph)
        new: dict[Symbol, Symbol] = {}

        def step(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            new.update(zip(symbol.inputs, inputs, strict=True))
            if symbol not in regions:
                return None
            source, expression = regions[symbol]
            return builder.apply(ElementwiseRegion(str(expression)), [new[source]], symbol.name, symbol.origin)

        return PassResult(rewrite_graph(graph, step), tuple(refusals))


def _find(graph: Graph) -> tuple[dict[Symbol, tuple[Symbol, Expression]], list[Refusal]]:
    """The regions by their last symbol: the tensor that each is a function of, and the function."""
    cones = _Cones(graph)
    regions: dict[Symbol, tuple[Symbol, Expression]] = {}
    refusals: list[Refusal] = []
    inside: set[Symbol] = set()
    for symbol in reversed(graph.operators):
        if symbol in inside or symbol not in cones.steps:
            continue
        region = cones.region(symbol)
        members = region[1] if region else []
        if region is None or len(members) < 2 or not any(_needs_table(cones.steps[member]) for member in members):
            reason = cones.obstacle(symbol)
            if reason and _needs_table(cones.steps[symbol]):
                refusals.append(Refusal(symbol.name, reason))
            continue
        regions[symbol] = (region[0], cones.expression(symbol, region[0]))
        inside.update(members)
    return regions, refusals[::-1]


@dataclass(frozen=True)
class _Step:
    """An elementwise operator as an expression has it, and the tensors that it is applied to."""

    operator: Operator
    inputs: tuple[Symbol, ...]


class _Cones:
    """Which tensors each elementwise symbol is a function of.

    steps: the elementwise symbols. beginnings: for each the nearest tensor that it is a function of. Following
    that from tensor to tensor gives every other one, as dominators do in a flow graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outputs = frozenset(graph.outputs)
        self._place = {symbol: place for place, symbol in enumerate((*graph.inputs, *graph.symbols))}
        self.steps: dict[Symbol, _Step] = {}
        self.beginnings: dict[Symbol, Symbol] = {}
        self._parts: dict[Symbol, tuple[list[Symbol], int, int]] = {}
        for symbol in graph.operators:
            step = _step(symbol, graph)
            beginning = None if step is None else self._common(step.inputs)
            if step is not None and beginning is not None:
                self.steps[symbol] = step
                self.beginnings[symbol] = beginning

    def region(self, symbol: Symbol) -> tuple[Symbol, list[Symbol]] | None:
        """The farthest tensor from which `symbol` may be collapsed, and the operators between; None if none may."""
        found: list[tuple[Symbol, list[Symbol]]] = []
        source, inside = symbol, set[Symbol]()
        size, reads = 0, 1
        while source in self.beginnings:
            farther = self.beginnings[source]
            if not self._is_small(source, farther):
                break
            members, part, leaves = self._part(source)
            inside.update(members)
            size, reads = size + reads * part, reads * leaves
            if size > MAX_OPERATORS or not all(m is symbol or self._is_hidden(m, inside) for m in members):
                break
            source = farther
            found.append((source, members + (found[-1][1] if found else [])))
        while len(found) > 1 and found[-2][0].operator.limits != EVERYTHING:
            found.pop()
        return found[-1] if found else None

    def obstacle(self, symbol: Symbol) -> str:
        """Why `symbol` was not collapsed with what it reads, "" where there was nothing to collapse."""
        beginning = self.beginnings[symbol]
        if not self._is_small(symbol, beginning):
            return f"it is a function of {beginning.name} by more than {MAX_OPERATORS} operators"
        inner = [member for member in self._members(symbol, beginning) if member is not symbol]
        wider = [*inner, beginning] if beginning in self.steps else inner
        for member in wider:
            if member in self._outputs:
                return f"{member.name} ({member.op}), which it reads, is an output"
            if any(reader is not symbol and reader not in wider for reader in self._graph.consumers[member]):
                return f"{member.name} ({member.op}), which it reads, is read by others too"
        return ""

    def expression(self, symbol: Symbol, source: Symbol) -> Expression:
        """`symbol` as a function of `source`."""
        found = {source: Expression()}
        for member in self._members(symbol, source):
            step = self.steps[member]
            found[member] = _applied(step.operator, [found[argument] for argument in step.inputs])
        return found[symbol]

    def _common(self, symbols: tuple[Symbol, ...]) -> Symbol | None:
        """The nearest tensor that all of `symbols` are functions of."""
        result = symbols[0]
        for other in symbols[1:]:
            while result is not other:
                # The later of two tensors cannot be what the earlier one is a function of.
                late, early = (result, other) if self._place[result] > self._place[other] else (other, result)
                if late not in self.beginnings:
                    return None
                result, other = self.beginnings[late], early
        return result

    def _members(self, symbol: Symbol, source: Symbol) -> list[Symbol]:
        """The operators from `source`, which is not among them, to `symbol`, in the graph's order."""
        return sorted(self._between(symbol, source, len(self._place)), key=self._place.__getitem__)

    def _is_small(self, symbol: Symbol, source: Symbol) -> bool:
        """Whether at most MAX_OPERATORS operators lead from `source` to `symbol`; it looks at few more than that, so
        that long chains that read one tensor again and again stay cheap."""
        return len(self._between(symbol, source, MAX_OPERATORS)) <= MAX_OPERATORS

    def _between(self, symbol: Symbol, source: Symbol, most: int) -> set[Symbol]:
        """The operators from `source`, which is not among them, to `symbol`; of more than `most` some."""
        found = {symbol}
        pending = [symbol]
        while pending and len(found) <= most:
            for argument in self.steps[pending.pop()].inputs:
                if argument is not source and argument not in found:
                    found.add(argument)
                    pending.append(argument)
        return found

    def _part(self, symbol: Symbol) -> tuple[list[Symbol], int, int]:
        """The operators from where `symbol` begins to it, and what `_counted` says of them."""
        if symbol not in self._parts:
            beginning = self.beginnings[symbol]
            members = self._members(symbol, beginning)
            self._parts[symbol] = (members, *self._counted(symbol, beginning, members))
        return self._parts[symbol]

    def _is_hidden(self, member: Symbol, inside: set[Symbol]) -> bool:
        """Whether a symbol is read by those `inside` only."""
        return member not in self._outputs and all(reader in inside for reader in self._graph.consumers[member])

    def _counted(self, symbol: Symbol, source: Symbol, members: list[Symbol]) -> tuple[int, int]:
        """How many operators `symbol` as an expression of `source` has, and how often `source` stands in it."""
        count = {source: (0, 1)}
        for member in members:
            inputs = self.steps[member].inputs
            operators = sum(count[argument][0] for argument in inputs) + max(1, len(inputs) - 1)
            count[member] = operators, sum(count[argument][1] for argument in inputs)
        return count[symbol]


def _step(symbol: Symbol, graph: Graph) -> _Step | None:
    """The symbol as a step of an expression; None where it is no elementwise operator on float tensors of one shape."""
    operator = symbol.operator
    tensors = tuple(source for source in symbol.inputs if graph.value(source) is None)
    if not symbol.type.is_float or not tensors or any(source.type != symbol.type for source in tensors):
        return None
    if len(tensors) == len(symbol.inputs):
        if operator.expression_arity == len(tensors) == 1 or isinstance(operator, AddN):
            return _Step(operator, tensors)
        of_two = _OF_TWO_TENSORS.get(operator.operation)
        return None if of_two is None or len(tensors) != 2 else _Step(of_two(), tensors)
    with_number = _WITH_NUMBER.get(operator.operation)
    place = symbol.inputs.index(tensors[0])
    value = None if with_number is None else graph.value(symbol.inputs[1 - place])
    if with_number is None or value is None or value.size != 1:
        return None
    return _Step(with_number[place](float(value.reshape(-1)[0])), tensors)


def _applied(operator: Operator, arguments: list[Expression]) -> Expression:
    """An operator on expressions: the product of equal ones as a square, a sum of several as sums of two."""
    if operator.operation is Operation.MULTIPLY and len(arguments) == 2 and arguments[0] == arguments[1]:
        return Expression(Square(), (arguments[0],))
    if isinstance(operator, AddN):
        return reduce(lambda left, right: Expression(ElemwiseAdd(), (left, right)), arguments)
    return Expression(operator, tuple(arguments))


def _needs_table(step: _Step) -> bool:
    return not step.operator.exact_in_integers
