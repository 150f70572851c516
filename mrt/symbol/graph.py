"""The graph: inputs, outputs and parameters, walked and evaluated without recursion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape

import numpy as np

from mrt.errors import DataError, GraphError
from mrt.symbol.arrays import as_array
from mrt.symbol.interval import Array
from mrt.symbol.operator import Operator
from mrt.symbol.symbol import Symbol
from mrt.symbol.text import format_graph, graph_page, shortened
from mrt.symbol.types import TensorType


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A directed acyclic graph of symbols.

    inputs: variables that are fed, in order. outputs: symbols whose values the graph gives, in order; an output may
    be an input or a parameter, and may stand twice. parameters: NumPy arrays by the name of their variable; those
    that no output needs are dropped.

    Of a graph as read: left_out: the operators of its file that a split left out, by name, each as the format calls it.
    notes: what a user of the model must know of the reading. output_names: by the names of output symbols what the
    model calls these outputs, where that is another name; a symbol that is an output twice has two. other_names: what
    the model calls its parts beside the names of symbols, such as PyTorch's modules, each with its symbols.
    """

    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    output_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names: dict[str, Symbol] = {}
        fed = {symbol.name for symbol in self.inputs}
        used: dict[str, Array] = {}
        for symbol in (*self.inputs, *self.symbols):
            if names.setdefault(symbol.name, symbol) is not symbol:
                raise GraphError(f"two symbols are called {symbol.name}; names must be unique")
            if not symbol.is_variable or symbol.name in fed:
                continue
            if symbol.name not in self.parameters:
                raise GraphError(f"{symbol.name} is neither an input nor a parameter")
            used[symbol.name] = value = self.parameters[symbol.name]
            if value.shape != symbol.shape or value.dtype != symbol.dtype:
                raise GraphError(f"parameter {symbol.name} is {value.dtype}{value.shape}, its symbol {symbol.type}")
        object.__setattr__(self, "parameters", used)

    @property
    def is_of_a_file(self) -> bool:
        """Whether it has notes and names of the file that it was read from."""
        return bool(self.left_out or self.notes or self.output_names or self.other_names)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol that an output needs, each after its inputs; in an order that depends on the graph alone."""
        return tuple(topological(self.outputs))

    @cached_property
    def by_name(self) -> dict[str, Symbol]:
        return {symbol.name: symbol for symbol in (*self.inputs, *self.symbols)}

    @cached_property
    def consumers(self) -> dict[Symbol, tuple[Symbol, ...]]:
        """The symbols that read each symbol, in order; one that reads it twice stands twice."""
        readers: dict[Symbol, list[Symbol]] = {symbol: [] for symbol in (*self.inputs, *self.symbols)}
        for symbol in self.symbols:
            for source in symbol.inputs:
                readers[source].append(symbol)
        return {symbol: tuple(found) for symbol, found in readers.items()}

    def without_values(self) -> Graph:
        """The graph with zeros for its parameters that take no memory: of use for its names and types alone."""
        zeros = {n: np.broadcast_to(np.zeros((), value.dtype), value.shape) for n, value in self.parameters.items()}
        return replace(self, parameters=zeros)

    def dependents(self, sources: Iterable[Symbol]) -> frozenset[Symbol]:
        """The symbols whose values depend on one of `sources`, these included."""
        found = set(sources)
        for symbol in self.symbols:
            if any(source in found for source in symbol.inputs):
                found.add(symbol)
        return frozenset(found)

    @cached_property
    def operators(self) -> tuple[Symbol, ...]:
        """The symbols that compute something: all but variables."""
        return tuple(symbol for symbol in self.symbols if not symbol.is_variable)

    @cached_property
    def records(self) -> frozenset[type[Operator]]:
        """The records of all operators."""
        return frozenset(type(symbol.operator) for symbol in self.operators)

    def value(self, symbol: Symbol) -> Array | None:
        """The array of a parameter, None for any other symbol."""
        return self.parameters.get(symbol.name) if symbol.is_variable else None

    def count_operators(self) -> dict[str, int]:
        """How often each operator occurs, by falling count."""
        return dict(Counter(symbol.op for symbol in self.operators).most_common())

    def feed(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Checks `feeds` against the inputs and gives them in the inputs' dtypes.

        Raises DataError for a missing or unknown name, a wrong shape, or values that the dtype does not hold.
        """
        if not isinstance(feeds, Mapping):
            raise DataError(f"feeds is a {type(feeds).__name__}; arrays by input name are needed")
        if not self._input_names.issuperset(feeds):
            unknown = sorted(map(str, set(feeds) - self._input_names))
            raise DataError(f"no such input: {', '.join(unknown)}; inputs are {[s.name for s in self.inputs]}")
        return {symbol.name: _checked(symbol.name, symbol.type, feeds) for symbol in self.inputs}

    def evaluate(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs for `feeds` (arrays by input name), computed by NumPy: what the graph means.

        Raises DataError where a feed does not fit its input.
        """
        results: dict[Symbol, Array] = {}
        for symbol, value in self.walk(feeds):
            if symbol in self._output_set:
                results[symbol] = value
        return [results[symbol] for symbol in self.outputs]

    def walk(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Symbol, Array]]:
        """Every symbol with its value, in order; a value is dropped after its last reader."""
        fed = self.feed(feeds)
        remaining = {symbol: len(self.consumers[symbol]) for symbol in self.symbols}
        values: dict[Symbol, Array] = {}
        for symbol in self.symbols:
            if symbol.is_variable:
                value = fed[symbol.name] if symbol.name in fed else self.parameters[symbol.name]
            else:
                value = evaluate_symbol(symbol, [values[source] for source in symbol.inputs])
            if remaining[symbol]:
                values[symbol] = value
            yield symbol, value
            for source in symbol.inputs:
                remaining[source] -= 1
                if not remaining[source]:
                    values.pop(source, None)

    def with_outputs(self, outputs: Iterable[Symbol]) -> Graph:
        """The same symbols with other outputs; the inputs stay."""
        return Graph(self.inputs, tuple(outputs), self.parameters)

    def read_like(self, source: Graph) -> Graph:
        """This graph with what is known of the reading of `source`, of which it was made."""
        known = source.left_out, source.notes, source.output_names, source.other_names
        return Graph(self.inputs, self.outputs, self.parameters, *known)

    @property
    def titles(self) -> tuple[str, ...]:
        """What the model calls its outputs, in order; each once, where it says so."""
        seen: Counter[str] = Counter()
        found = []
        for symbol in self.outputs:
            names = self.output_names.get(symbol.name, ())
            found.append(names[seen[symbol.name]] if seen[symbol.name] < len(names) else symbol.name)
            seen[symbol.name] += 1
        return tuple(found)

    @cached_property
    def _input_names(self) -> frozenset[str]:
        return frozenset(symbol.name for symbol in self.inputs)

    @cached_property
    def _output_set(self) -> frozenset[Symbol]:
        return frozenset(self.outputs)

    def text(self) -> str:
        """The whole text form, a line for each symbol."""
        return format_graph(self.inputs, self.symbols, self.outputs, self.parameters)

    def __str__(self) -> str:
        """The text form, of which the middle is left out where it is long."""
        return shortened(self.text())

    def __repr__(self) -> str:
        return graph_page(self.inputs, self.outputs, self.count_operators(), self.parameters)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def topological(outputs: Iterable[Symbol], known: Iterable[Symbol] = ()) -> list[Symbol]:
    """Every symbol that `outputs` need, each once and after its inputs, depth first and left to right.

    known: symbols that are left out, with what they alone need.
    """
    done = set(known)
    order: list[Symbol] = []
    for output in outputs:
        stack = [(output, iter(output.inputs))] if output not in done else []
        done.add(output)
        while stack:
            symbol, pending = stack[-1]
            for source in pending:
                if source not in done:
                    done.add(source)
                    stack.append((source, iter(source.inputs)))
                    break
            else:
                order.append(symbol)
                stack.pop()
    return order


def evaluate_symbol(symbol: Symbol, inputs: list[Array]) -> Array:
    """The value of one symbol for the values of its inputs, checked to fit the inferred type."""
    value = np.asarray(symbol.operator.evaluate(*inputs))
    if tuple(value.shape) != symbol.shape:
        raise GraphError(f"{symbol.name} ({symbol.op}) gave shape {value.shape}, {symbol.shape} was inferred")
    return cast_exactly(value, symbol.dtype, symbol.name)


def cast_exactly(value: Array, dtype: str, name: str) -> Array:
    """`value` as `dtype`; GraphError where an integer would wrap."""
    if value.dtype == dtype:
        return value
    if np.dtype(dtype).kind in "iu" and value.size:
        info = np.iinfo(dtype)
        if value.min() < info.min or value.max() > info.max:
            raise GraphError(f"{name}: [{value.min()}, {value.max()}] overflows {dtype}")
    return value.astype(dtype)


def _checked(name: str, type: TensorType, feeds: Mapping[str, Array]) -> Array:
    if name not in feeds:
        raise DataError(f"input {name} is missing; {type} is needed")
    value = as_array(feeds[name], f"input {name}")
    if value.shape != type.shape:
        raise DataError(f"input {name} has shape {value.shape}; {type} is needed")
    if type.is_integer and value.dtype.kind not in "iub":
        raise DataError(f"input {name} is {value.dtype}; {type} is needed")
    try:
        return cast_exactly(value, type.dtype, f"input {name}")
    except GraphError as error:
        raise DataError(str(error)) from None
