"""Making graphs: symbols with unique names, parameters collected on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.graph import Graph, topological
from mrt.symbol.interval import Array
from mrt.symbol.operator import Operator
from mrt.symbol.symbol import Symbol, apply, on_inputs, variable
from mrt.symbol.types import TensorType, type_of


class GraphBuilder:
    """Collects the inputs, parameters and names of one graph while its symbols are made."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        """`reserved`: names that only an exact request may take, such as those of the graph being rewritten."""
        self._reserved = set(reserved)
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self._inputs: list[Symbol] = []
        self._parameters: dict[str, Array] = {}

    @classmethod
    def of(cls, graph: Graph) -> GraphBuilder:
        """One that has all of a graph: its inputs, its parameters and its names, which `release` gives back."""
        builder = cls(reserved=graph.by_name)
        builder._inputs, builder._parameters = list(graph.inputs), dict(graph.parameters)
        builder._taken = set(graph.by_name)
        return builder

    def release(self, symbol: Symbol) -> None:
        """Lets the name of a symbol be taken once more, by who asks for just this name."""
        self._taken.discard(symbol.name)

    def input(self, name: str, type: TensorType) -> Symbol:
        """A new input; GraphError if the name is taken."""
        symbol = variable(self._claim(name), type)
        self._inputs.append(symbol)
        return symbol

    def parameter(self, name: str, value: Array, origin: str | None = None) -> Symbol:
        """A parameter holding `value`, under `name` or, if that is taken, a name made from it."""
        value = np.asarray(value)
        symbol = variable(self.unique(name), type_of(value), origin)
        self._parameters[symbol.name] = value
        return symbol

    def apply(
        self, operator: Operator, inputs: Sequence[Symbol], name: str | None = None, origin: str | None = None
    ) -> Symbol:
        """`operator` on `inputs`, under `name` or, if that is taken, a name made from it."""
        return apply(operator, inputs, self.unique(name or operator.op.lower().strip("_")), origin)

    def reapply(self, symbol: Symbol, inputs: tuple[Symbol, ...]) -> Symbol:
        """The operator of a symbol on other inputs, under its name or, if that is taken, a name made from it."""
        return on_inputs(symbol, inputs, self.unique(symbol.name))

    def adopt(self, symbol: Symbol, value: Array | None = None) -> Symbol:
        """Takes a symbol of another graph as it is, with its value if it is a parameter."""
        self._claim(symbol.name)
        if value is not None:
            self._parameters[symbol.name] = value
        return symbol

    def adopt_input(self, symbol: Symbol) -> Symbol:
        """Takes a variable of another graph as an input of this one."""
        self._claim(symbol.name)
        self._inputs.append(symbol)
        return symbol

    def value(self, symbol: Symbol) -> Array | None:
        """The array of a parameter, None for any other symbol."""
        return self._parameters.get(symbol.name) if symbol.is_variable else None

    def unique(self, name: str) -> str:
        """`name` if no symbol has it, else `name` with the first free number; the name is then taken."""
        candidate = name
        while candidate in self._taken or (candidate in self._reserved and candidate != name):
            self._next[name] = self._next.get(name, 0) + 1
            candidate = f"{name}_{self._next[name]}"
        self._taken.add(candidate)
        return candidate

    def graph(self, outputs: Sequence[Symbol]) -> Graph:
        """The graph of all inputs so far, with these outputs; parameters that no output needs are dropped."""
        return Graph(tuple(self._inputs), tuple(outputs), self._parameters)

    def _claim(self, name: str) -> str:
        if name in self._taken:
            raise GraphError(f"two symbols are called {name}; names must be unique")
        self._taken.add(name)
        return name


Rewrite = Callable[[Symbol, tuple[Symbol, ...], GraphBuilder], "Symbol | None"]


def rewrite_graph(graph: Graph, rewrite: Rewrite, about: tuple[type[Operator], ...] = (Operator,)) -> Graph:
    """The graph with every operator symbol of a record in `about` replaced by what `rewrite` gives for it.

    `rewrite(symbol, inputs, builder)` gets the old symbol and its inputs in the new graph, and gives the new symbol,
    or None to keep the operator as it is. A symbol none of whose inputs changed is kept itself. Should the new
    symbol take the old one's place in tables, it is made under the old one's name. Where nothing changes, and the graph
    knows nothing of the file that it was read from, it is given back itself.
    """
    shown = {record for record in graph.records if issubclass(record, about)}
    if not shown and not graph.is_of_a_file:
        return graph
    builder, changed = GraphBuilder.of(graph), dict[Symbol, Symbol]()
    for symbol in graph.operators:
        inputs = tuple([changed.get(source, source) for source in symbol.inputs]) if changed else symbol.inputs
        is_shown = type(symbol.operator) in shown
        if not is_shown and inputs == symbol.inputs:
            continue
        builder.release(symbol)
        made = rewrite(symbol, inputs, builder) if is_shown else None
        made = made or keep(symbol, inputs, builder)
        if made is not symbol:
            changed[symbol] = made
    outputs = [changed.get(symbol, symbol) for symbol in graph.outputs]
    is_same = all(made is symbol for made, symbol in zip(outputs, graph.outputs, strict=True))
    return graph if is_same and not graph.is_of_a_file else builder.graph(outputs)


def keep(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol:
    """The same operator on the rewritten inputs, under the same name."""
    if inputs == symbol.inputs:
        return builder.adopt(symbol)
    return builder.reapply(symbol, inputs)


def part_of(inputs: Collection[Symbol], outputs: Sequence[Symbol], value: Callable[[Symbol], Array | None]) -> Graph:
    """The part of a graph from `inputs`, as far as they are needed, to `outputs`, to be run on its own.

    value: gives the array of a parameter, None for any other symbol. An output that is one of `inputs` is handed on.
    """
    part = GraphBuilder()
    made: dict[Symbol, Symbol] = {}
    for symbol in topological(outputs, known=inputs):
        for source in symbol.inputs:
            if source not in made:
                made[source] = part.input(source.name, source.type)
        if symbol.is_variable:
            made[symbol] = part.adopt(symbol, value(symbol))
        else:
            made[symbol] = part.reapply(symbol, tuple([made[source] for source in symbol.inputs]))
    return part.graph([made[symbol] for symbol in outputs])
